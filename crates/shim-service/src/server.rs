//! Serves one pod: sets up reaper, publisher, owner and ttrpc server, and ends them in order.
//!
//! Owns that order. It alone knows all parts of the crate.

use std::fs::File;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use containerd_shim_protos::sandbox_async::create_sandbox;
use containerd_shim_protos::shim_async::create_task;
use control_api::{Past, create_pod};
use processes::reaper::Reaper;
use streams::head::Hands;
use thiserror::Error;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use ttrpc::asynchronous::Server;

use crate::command::OwnerHandle;
use crate::context::{PodContext, console_directory};
use crate::control::ControlService;
use crate::control::counters::PodCounters;
use crate::drive;
use crate::identity::Identity;
use crate::peers;
use crate::publisher::Publisher;
use crate::sandbox_service::SandboxService;
use crate::state::State;
use crate::task::TaskService;
use crate::throttle::Throttle;

/// The names under which containerd 1.x and 2.x call the same service (CONTRACT §1.3).
const TASK_V2: &str = "containerd.task.v2.Task";
const TASK_V3: &str = "containerd.task.v3.Task";
/// How long the last events may take to reach containerd.
const LAST_EVENTS: Duration = Duration::from_secs(2);

/// How long the last answers may take. containerd waits 3 s for Shutdown in all.
const LAST_ANSWERS: Duration = Duration::from_millis(500);

/// What a pod's server is started with.
#[derive(Debug)]
pub struct ServeConfig {
    /// containerd's namespace.
    pub namespace: String,
    /// The pod's grouping id.
    pub id: String,
    /// containerd's socket for events; without one events are dropped.
    pub containerd_ttrpc_address: Option<String>,
    /// The pod's socket; it listens already.
    pub listener: UnixListener,
    /// podshim's configuration file on this node (`/etc/podshim/config.toml`). It need not exist.
    pub node_file: PathBuf,
    /// The file that exists while the node is being drained (N7).
    pub draining_file: PathBuf,
    /// The pod's directory below `/run/podshim`: its locks, and its entry, which gets what the shim has counted. The entry need
    /// not exist.
    pub state_directory: PathBuf,
    /// The lock on the pod's state, held for as long as the server lives (N3).
    pub lock: File,
    /// The log's descriptor, if there is a log: all threads write to it.
    pub log: Option<RawFd>,
}

/// Why a server cannot serve.
#[derive(Debug, Error)]
pub enum ServeError {
    /// A system call that every server needs failed.
    #[error("cannot {what}: {source}")]
    Setup {
        /// What was attempted.
        what: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// The ttrpc server did not start.
    #[error("cannot serve ttrpc: {0}")]
    Ttrpc(#[from] ttrpc::Error),
}

/// Serves a pod until the shim may end. Returns the record that is kept of it. Must run inside a `LocalSet` of a
/// current-thread runtime.
///
/// # Errors
/// [`ServeError`], before anything is served.
pub async fn serve(config: ServeConfig) -> Result<Option<Past>, ServeError> {
    let ServeConfig {
        namespace,
        id,
        containerd_ttrpc_address,
        listener,
        node_file,
        draining_file,
        state_directory,
        lock,
        log,
    } = config;
    let setup = |what| move |source| ServeError::Setup { what, source };
    let reaper = Reaper::start().map_err(setup("reap processes"))?;
    let publisher =
        Publisher::new(containerd_ttrpc_address.as_deref().unwrap_or_default(), namespace.clone());
    let stop = stop_signals().map_err(setup("receive signals"))?;
    let (handle, commands) = OwnerHandle::channel();
    let socket = listener.local_addr().ok().and_then(|address| address.as_pathname().map(Path::to_owned));
    let context = PodContext {
        namespace: namespace.as_str().into(),
        node_file: node_file.into(),
        draining_file: draining_file.into(),
        state_directory: state_directory.as_path().into(),
        console_directory: console_directory(socket.as_deref().unwrap_or(Path::new(&id))).into(),
        hands: Hands::new(log.into_iter().collect()),
        throttle: Rc::new(Throttle::new(reaper.clone())),
    };
    let identity = Identity { id: id.clone(), namespace, ..Identity::default() };
    let (sender, reports) = mpsc::unbounded_channel();
    let state = State::new(identity, context, reaper, publisher, sender);

    let listener = peers::listener(listener).map_err(setup("use the inherited socket"))?;
    let mut server = Server::new().add_listener(listener);
    for service in task_services(handle.clone()) {
        server = server.register_service(service);
    }
    server = server.register_service(create_sandbox(Arc::new(SandboxService::new(handle.clone()))));
    server = server.register_service(create_pod(Arc::new(ControlService::new(handle))));
    server.start().await?;
    tracing::info!(id, "serving");

    let (publisher, counters, past) = drive::run_until_empty(state, commands, reports, stop).await;
    leave(server, socket.as_deref(), publisher, counters, &state_directory).await;
    drop(lock);
    // The answer has woken a thread of containerd, most often on this processor. The shim's own end takes half a millisecond:
    // let containerd run first, which removes the container meanwhile.
    let _ = nix::sched::sched_yield();
    Ok(past)
}

/// The pod is gone: no more is served, and what containerd is still to hear is sent.
async fn leave(
    mut server: Server,
    socket: Option<&Path>,
    publisher: Publisher,
    mut counters: PodCounters,
    state_directory: &Path,
) {
    // First: no `start` may get the address of a shim that is about to end, and `delete` sees by it that the shim ends.
    if let Some(socket) = socket {
        let _ = std::fs::remove_file(socket);
    }
    server.stop_listen().await;
    let undelivered = publisher.flush(LAST_EVENTS).await;
    if undelivered > 0 {
        tracing::warn!(undelivered, "events are lost: containerd did not take them");
    }
    counters.events_dropped(publisher.dropped() + undelivered);
    if let Err(error) = counters.save(state_directory) {
        tracing::warn!(%error, "cannot keep what was counted for podshim metrics");
    }
    // Sends the answer to Shutdown; a connection that stays open must not keep the shim.
    let _ = tokio::time::timeout(LAST_ANSWERS, server.shutdown()).await;
}

/// The Task service under both of its names; the messages are the same.
fn task_services(
    handle: OwnerHandle,
) -> Vec<std::collections::HashMap<String, ttrpc::asynchronous::Service>> {
    let services = |name: &str| {
        let service = create_task(Arc::new(TaskService::new(handle.clone())));
        service.into_values().map(|service| (name.to_owned(), service)).collect()
    };
    vec![services(TASK_V2), services(TASK_V3)]
}

/// SIGTERM and SIGINT stop the pod in order (DESIGN §4).
fn stop_signals() -> io::Result<mpsc::Receiver<()>> {
    let (mut term, mut int) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let (sender, receiver) = mpsc::channel(1);
    tokio::task::spawn_local(async move {
        loop {
            tokio::select! {
                Some(()) = term.recv() => {}
                Some(()) = int.recv() => {}
                else => return,
            }
            if sender.send(()).await.is_err() {
                return;
            }
        }
    });
    Ok(receiver)
}
