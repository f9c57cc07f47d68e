//! One exec of a container.

use crate::interface::exit::Exit;
use crate::interface::id::{OpId, RequestId};
use crate::interface::view::{Status, View};

/// One exec of a container.
#[derive(Clone, Debug)]
pub(crate) struct Exec {
    pub(crate) phase: ExecPhase,
    pub(crate) pid: u32,
    pub(crate) waiters: Vec<RequestId>,
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

impl Exec {
    pub(crate) fn view(&self) -> View {
        let (status, exit) = match &self.phase {
            ExecPhase::Added | ExecPhase::Failed | ExecPhase::Starting { .. } => (Status::Created, None),
            ExecPhase::Running => (Status::Running, None),
            ExecPhase::Stopped { exit } => (Status::Stopped, Some(*exit)),
            ExecPhase::Removing { exit, .. } => (Status::Stopped, *exit),
        };
        View { status, pid: self.pid, exit, has_process: status == Status::Running }
    }

    /// Whether its exit must still come before its container's (CONTRACT §6).
    pub(crate) fn is_running(&self) -> bool {
        matches!(self.phase, ExecPhase::Starting { .. } | ExecPhase::Running)
    }
}
