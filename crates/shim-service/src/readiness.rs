//! Whether a process is ready, for the gates that a program opens itself (`log:`, `notify`).
//!
//! Owns this for each process, from before its program starts, and the socket that receives `notify` messages. May know no
//! container: `listen` ties it to one.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;
use std::time::Duration;

use cgroups::Cgroup;
use oci_runtime::bundle::Bundle;
use oci_runtime::notify::{NotifySocket, Statement};
use pod_lifecycle::Failure;
use processes::Process;
use processes::reaper::Reaper;
use tokio::sync::Notify;

use crate::error::failure;

/// Whether one process is ready.
#[derive(Debug)]
pub(crate) struct Readiness {
    is_ready: Cell<bool>,
    /// What a failed check reports.
    status: RefCell<String>,
    changed: Notify,
}

impl Readiness {
    /// A process that is not ready yet. `status` is what a failed check reports.
    pub(crate) fn not_yet(status: String) -> Rc<Self> {
        let (is_ready, status) = (Cell::new(false), RefCell::new(status));
        Rc::new(Self { is_ready, status, changed: Notify::new() })
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.is_ready.get()
    }

    pub(crate) fn became_ready(&self) {
        self.is_ready.set(true);
        // `notify_one` keeps the wake-up for a check that begins later.
        self.changed.notify_one();
    }

    fn keep_status(&self, status: String) {
        *self.status.borrow_mut() = status;
    }

    /// Waits for the process to be ready, for at most `limit`; fails with its status by then.
    pub(crate) async fn within(&self, limit: Duration) -> Result<(), Failure> {
        let ready = async {
            while !self.is_ready() {
                self.changed.notified().await;
            }
        };
        match tokio::time::timeout(limit, ready).await {
            Ok(()) => Ok(()),
            Err(_) => Err(failure(self.status.borrow())),
        }
    }
}

/// The socket of a container whose gate is `notify`, over all its incarnations.
#[derive(Debug)]
pub(crate) struct NotifyListener {
    socket: NotifySocket,
    /// What the messages of the current process are for.
    awaited: Rc<RefCell<Option<Rc<Readiness>>>>,
}

impl NotifyListener {
    /// Opens the socket in a container's bundle. Messages count from [`Self::expect`] on.
    ///
    /// # Errors
    /// The system's answer: the socket cannot be created.
    pub(crate) fn open(reaper: &Reaper, bundle: &Bundle) -> io::Result<Self> {
        let awaited: Rc<RefCell<Option<Rc<Readiness>>>> = Rc::default();
        let receiver = awaited.clone();
        let on_message = move |statement| receive(&mut receiver.borrow_mut(), statement);
        Ok(Self { socket: NotifySocket::listen(reaper, bundle, on_message)?, awaited })
    }

    /// From now on the messages of a new process count, which come from its cgroup, and no earlier process's.
    pub(crate) fn expect(&self, cgroup: Option<&Cgroup>, process: &Process, readiness: Rc<Readiness>) {
        self.awaited.replace(Some(readiness));
        self.socket.receive_from(cgroup, process);
    }

    /// That process has ended.
    pub(crate) fn ended(&self) {
        self.socket.ended();
    }

    /// Nothing of podshim's is in the container's groups any more.
    pub(crate) fn left(&self) -> impl Future<Output = ()> + use<> {
        self.socket.left()
    }
}

fn receive(awaited: &mut Option<Rc<Readiness>>, statement: Statement) {
    // The gate is open: messages have no effect any more.
    let Some(readiness) = awaited else { return };
    readiness.keep_status(match statement {
        Statement::Ready => {
            readiness.became_ready();
            *awaited = None;
            return;
        }
        Statement::Status(status) => format!("notify: no READY=1 yet, its status is {status:?}"),
        Statement::Stranger => {
            "notify: a message was not taken, for its sender is no process of the container".to_owned()
        }
        Statement::Deaf(why) => format!("notify: {why}"),
    });
}
