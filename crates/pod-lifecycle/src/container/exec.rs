//! One exec of a container: an extra process, never held (K1, U8).
//!
//! Owns its phase, its pid and the requests that wait for it. Knows neither its container nor the pod.

use crate::interface::action::Deleted;
use crate::interface::exit::Exit;
use crate::interface::id::{OpId, RequestId};
use crate::interface::view::{Status, View};

/// One exec of a container.
#[derive(Clone, Debug)]
pub(crate) struct Exec {
    phase: ExecPhase,
    pid: u32,
    waiters: Vec<RequestId>,
}

/// Where an exec is in its life.
#[derive(Clone, Debug)]
pub(crate) enum ExecPhase {
    Added,
    /// Its start failed; the caller may try again. A Wait is answered at once, as with the runc shim.
    Failed,
    Starting {
        op: OpId,
        request: RequestId,
    },
    Running,
    Stopped {
        exit: Exit,
    },
    Removing {
        op: OpId,
        requests: Vec<RequestId>,
        exit: Option<Exit>,
    },
}

/// What is left to answer when an exec, or its container, is gone.
#[derive(Debug)]
pub(crate) struct RemovedExec {
    /// Deletes of the exec, and the answer to them.
    pub(crate) deletes: Vec<RequestId>,
    pub(crate) deleted: Deleted,
    /// Waits, and a Start under way.
    pub(crate) waiters: Vec<RequestId>,
}

impl Exec {
    /// An exec that a caller has registered.
    pub(crate) fn new() -> Self {
        Self { phase: ExecPhase::Added, pid: 0, waiters: Vec::new() }
    }

    pub(crate) fn phase(&self) -> &ExecPhase {
        &self.phase
    }

    pub(crate) fn view(&self) -> View {
        let (status, exit) = match &self.phase {
            ExecPhase::Added | ExecPhase::Failed | ExecPhase::Starting { .. } => (Status::Created, None),
            ExecPhase::Running => (Status::Running, None),
            ExecPhase::Stopped { exit } => (Status::Stopped, Some(*exit)),
            ExecPhase::Removing { exit, .. } => (Status::Stopped, *exit),
        };
        View { status, pid: self.pid, exit, has_process: status == Status::Running }
    }

    /// Whether it has a process that can get a signal.
    pub(crate) fn runs(&self) -> bool {
        matches!(self.phase, ExecPhase::Running)
    }

    /// Whether its exit must still come before its container's (CONTRACT §6).
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.phase, ExecPhase::Starting { .. } | ExecPhase::Running)
    }

    pub(crate) fn may_start(&self) -> bool {
        matches!(self.phase, ExecPhase::Added | ExecPhase::Failed)
    }

    /// Its start begins.
    pub(crate) fn start(&mut self, op: OpId, request: RequestId) {
        self.phase = ExecPhase::Starting { op, request };
    }

    /// The operation that starts it, while that is under way.
    pub(crate) fn starting(&self) -> Option<OpId> {
        match self.phase {
            ExecPhase::Starting { op, .. } => Some(op),
            _ => None,
        }
    }

    /// The request whose start is under way.
    pub(crate) fn start_request(&self) -> Option<RequestId> {
        match self.phase {
            ExecPhase::Starting { request, .. } => Some(request),
            _ => None,
        }
    }

    /// Its process runs.
    pub(crate) fn started(&mut self, pid: u32) {
        self.pid = pid;
        self.phase = ExecPhase::Running;
    }

    /// Its start has failed. Returns the Waits that are answered now.
    pub(crate) fn start_failed(&mut self) -> Vec<RequestId> {
        self.phase = ExecPhase::Failed;
        std::mem::take(&mut self.waiters)
    }

    /// Its process is gone. Returns the pid and the Waits that are answered now.
    pub(crate) fn exited(&mut self, exit: Exit) -> (u32, Vec<RequestId>) {
        self.phase = ExecPhase::Stopped { exit };
        (self.pid, std::mem::take(&mut self.waiters))
    }

    /// A Wait: its answer, if the exec has ended; otherwise it is answered later.
    pub(crate) fn wait(&mut self, request: RequestId) -> Option<Exit> {
        match &self.phase {
            ExecPhase::Stopped { exit } | ExecPhase::Removing { exit: Some(exit), .. } => Some(*exit),
            ExecPhase::Failed => Some(Exit::default()),
            _ => {
                self.waiters.push(request);
                None
            }
        }
    }

    pub(crate) fn forget_waiter(&mut self, request: RequestId) {
        self.waiters.retain(|waiter| *waiter != request);
    }

    /// Its removal begins; the caller has checked that it does not run.
    pub(crate) fn remove(&mut self, op: OpId, request: RequestId) {
        let exit = match self.phase {
            ExecPhase::Stopped { exit } => Some(exit),
            _ => None,
        };
        self.phase = ExecPhase::Removing { op, requests: vec![request], exit };
    }

    /// Another Delete while the removal is under way. Returns whether it is.
    pub(crate) fn remove_again(&mut self, request: RequestId) -> bool {
        match &mut self.phase {
            ExecPhase::Removing { requests, .. } => {
                requests.push(request);
                true
            }
            _ => false,
        }
    }

    /// Its removal has failed: it stays deletable, as a container does. Returns the Deletes to answer.
    pub(crate) fn removal_failed(&mut self) -> Vec<RequestId> {
        let ExecPhase::Removing { requests, exit, .. } = &mut self.phase else { return Vec::new() };
        let requests = std::mem::take(requests);
        self.phase = exit.map_or(ExecPhase::Added, |exit| ExecPhase::Stopped { exit });
        requests
    }

    /// It is gone.
    pub(crate) fn into_removed(self) -> RemovedExec {
        let Self { phase, pid, mut waiters } = self;
        let (deletes, exit) = match phase {
            ExecPhase::Removing { requests, exit, .. } => (requests, exit),
            ExecPhase::Starting { request, .. } => {
                waiters.push(request);
                (Vec::new(), None)
            }
            _ => (Vec::new(), None),
        };
        RemovedExec { deletes, deleted: Deleted { pid, exit: exit.unwrap_or_default() }, waiters }
    }
}
