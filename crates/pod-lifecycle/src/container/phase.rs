//! Where a container is in its life.
//!
//! Owns the list of phases, and the words for them in refusals. Decides nothing: only `container::events` moves a container
//! from one to another.

use std::time::Duration;

use pod_spec::Signal;

use crate::container::hold::Hold;
use crate::interface::exit::Exit;
use crate::interface::id::{OpId, RequestId};
use crate::interface::milestone::SignalCause;
use crate::interface::operation::Reach;
use crate::interface::time::PodTime;
use crate::interface::view::Status;

/// Where a container is in its life.
#[derive(Clone, Debug)]
pub(crate) enum Phase {
    /// The first create is under way. `completed` is the exit of a completed init that is created again: it gets its stdio
    /// and no process (I4). `deletes` are requests to delete it as soon as it exists: containerd sends one when the
    /// caller of a create is gone.
    Creating { op: OpId, request: RequestId, completed: Option<Exit>, deletes: Vec<RequestId> },
    /// The runtime's init waits; the caller has not sent Start.
    Created,
    /// I4: a completed init created again; it has no process and will not run.
    CompletedAgain { exit: Exit },
    /// To be restored from a checkpoint at its Start; it has no process, and containerd knows it as CREATED with
    /// pid 0.
    Prepared,
    /// `runtime restore` is under way for these Start requests. Its pid is known when that has ended.
    Restoring { op: OpId, announce: Vec<RequestId> },
    /// The caller sent Start and got its answer; the program waits for its gates (U7). An in-place restart passes
    /// through this phase too, because the same rules decide when it starts.
    Held(Hold),
    /// `runtime start` is under way. `announce`: Start requests still to be answered; none after a hold or an in-place
    /// restart. An exit that comes meanwhile is deferred, so that TaskStart comes first. `signals` are deferred too: the
    /// process is still the runtime's init, which would die of them as if there were no program.
    Starting { op: OpId, announce: Vec<RequestId>, early_exit: Option<Exit>, signals: Vec<DeferredSignal> },
    /// The program runs.
    Running { since: PodTime },
    /// It ends without its program having run (again): podshim has killed the runtime's init and waits for its exit;
    /// `code` is what callers will see.
    EndingUnrun { code: u32 },
    /// The init is gone; its execs' exits and the end of what is left in its cgroup come first (CONTRACT §6).
    Draining { exit: Exit, was: ExitedFrom, op: Option<OpId> },
    /// Waiting for the next restart (R4). Shown as RUNNING (F11).
    BackingOff { last: Exit, until: PodTime },
    /// R6 is under way.
    Recreating { op: OpId, last: Exit },
    /// I5: a completed init whose exit its caller must not see yet.
    Hidden { exit: Exit },
    /// Final; `exit` is what callers see.
    Stopped { exit: Exit },
    /// The final delete is under way, for all these requests; if it fails the container goes back to `before`.
    Removing { op: OpId, requests: Vec<RequestId>, exit: Exit, before: BeforeRemoval },
}

/// A signal that waits for the end of a start.
pub(crate) type DeferredSignal = (Signal, Reach, SignalCause);

/// The phases in which a container can be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BeforeRemoval {
    /// The delete takes its runtime's init with it; an exit that comes meanwhile is deferred.
    Created {
        early_exit: Option<Exit>,
    },
    CompletedAgain,
    Prepared,
    Stopped,
}

/// What the init was doing when it exited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExitedFrom {
    Created,
    Held,
    EndingUnrun { code: u32 },
    Running { ran: Duration, end: ProgramEnd },
}

/// Who ended a program (I4, J10). What comes after its exit, while something of its container is left, changes nothing of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ProgramEnd {
    Own,
    /// Its end had begun: a hook of its stop in it, or a stop signal. Not by SIGKILL alone, which leaves no code of the program's
    /// own.
    Interrupted,
}

/// Whether the program has ever been started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    NeverRan,
    HasRun,
}

/// What a container is to its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The pause container.
    Sandbox,
    /// Not in the plan (S8).
    Passthrough,
    /// In the plan: an index into the member table.
    Member(usize),
}

impl Phase {
    /// Whether it is being deleted, or will be once its create has ended.
    pub(crate) fn is_leaving(&self) -> bool {
        match self {
            Self::Removing { .. } => true,
            Self::Creating { deletes, .. } => !deletes.is_empty(),
            _ => false,
        }
    }

    /// What follows "it" in a refusal.
    pub(crate) fn in_words(&self) -> &'static str {
        match self {
            Self::Creating { .. } => "is being created",
            Self::Created => Status::Created.in_words(),
            Self::Prepared | Self::Restoring { .. } => "is not restored yet",
            Self::Held(_) => "is held",
            Self::Starting { .. } => "is being started",
            Self::Running { .. } => Status::Running.in_words(),
            Self::CompletedAgain { .. } | Self::Hidden { .. } => "is completed",
            Self::BackingOff { .. } => "is backing off",
            Self::Recreating { .. } => "is restarting",
            Self::EndingUnrun { .. } | Self::Draining { .. } => "is ending",
            Self::Stopped { .. } | Self::Removing { .. } => Status::Stopped.in_words(),
        }
    }

    /// Whether its exit is shown.
    pub(crate) fn is_stopped(&self) -> bool {
        matches!(self, Self::Stopped { .. })
    }
}
