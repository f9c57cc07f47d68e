//! What the pod wants done. Actions are data; the driver executes them in the order in which they come. Decides nothing.

use pod_spec::Signal;

use crate::interface::exit::Exit;
use crate::interface::id::{ContainerId, ExecId, OpId, RequestId, Target};
use crate::interface::milestone::{Milestone, SignalCause};
use crate::interface::operation::{Operation, Reach};
use crate::interface::outcome::Refusal;

/// Something to do, now and in this order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Start an operation; answer with [`crate::Event::Done`].
    Run {
        /// Its id.
        op: OpId,
        /// The container it is about.
        container: ContainerId,
        /// What to do.
        operation: Operation,
    },
    /// Send a signal through the process's pidfd. A process that has already exited is no error: its exit is on the
    /// way.
    Signal {
        /// The process.
        target: Target,
        /// The signal.
        signal: Signal,
        /// Init only, or every process of the container.
        reach: Reach,
        /// Why.
        cause: SignalCause,
    },
    /// Let every process of a container run that the kernel's freezer keeps from acting on its signal, whatever has frozen it
    /// (K17). Where none is frozen it changes nothing.
    Thaw {
        /// The container.
        container: ContainerId,
    },
    /// Answer a request. Each request gets exactly one answer.
    Reply {
        /// The request.
        request: RequestId,
        /// The answer.
        result: Result<Reply, Refusal>,
    },
    /// Nothing waits for an operation any more that would make a process: answer it as failed, at once, whatever its runtime does. End
    /// what it still makes when that appears, before anything else is done to the container (T10).
    GiveUp {
        /// The operation: a `Recreate` or a `Start`.
        op: OpId,
        /// The container.
        container: ContainerId,
    },
    /// A caller deletes a container whose create is under way: that create no longer waits for containerd to open its side of the
    /// streams, and fails instead (F11). A create that has come further goes on.
    GiveUpCreate {
        /// The container.
        container: ContainerId,
    },
    /// Publish an event to containerd. The order of events matters (CONTRACT §6).
    Publish(Notice),
    /// Lower `oom_score_adj` to `highest` for every process of a container that has a higher value (N8).
    LimitOomScore {
        /// The container.
        container: ContainerId,
        /// The highest value that stays.
        highest: i32,
    },
    /// Write a line to the container's own log.
    WriteLine {
        /// The container.
        container: ContainerId,
        /// Without prefix and line end.
        line: String,
        /// Where the line goes besides.
        to: LineTarget,
    },
    /// The container's exit is final: close podshim's ends of its output, so that readers see its end. `real` is how
    /// the process exited, `shown` what callers see (J2); keep both.
    Finish {
        /// The container.
        container: ContainerId,
        /// What callers see.
        shown: Exit,
        /// How it really exited.
        real: Exit,
    },
    /// Keep something for the pod's history.
    Record {
        /// The container; `None` for the pod itself.
        container: Option<ContainerId>,
        /// What happened.
        milestone: Milestone,
    },
    /// A line for the shim's own log.
    Warn(String),
    /// A decision worth a line in the shim's own log at info level.
    Note(String),
}

/// Where a line goes besides the container's stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineTarget {
    /// Nowhere else.
    Log,
    /// Into the termination message too, so that `kubectl describe` shows it (J9).
    LogAndTerminationMessage,
}

/// A positive answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Done.
    Ok,
    /// Created or started; the process.
    Pid(u32),
    /// The process has exited; how callers see that.
    Exit(Exit),
    /// Deleted; what it was.
    Deleted(Deleted),
}

/// What a deleted container or exec was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deleted {
    /// Its last pid.
    pub pid: u32,
    /// Its shown exit.
    pub exit: Exit,
}

/// An event for containerd (CONTRACT §6).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// TaskCreate.
    Created {
        /// The container.
        container: ContainerId,
        /// The pid of its init.
        pid: u32,
    },
    /// TaskStart.
    Started {
        /// The container.
        container: ContainerId,
        /// The pid of its init.
        pid: u32,
    },
    /// TaskExecAdded.
    ExecAdded {
        /// The container.
        container: ContainerId,
        /// The exec.
        exec: ExecId,
    },
    /// TaskExecStarted.
    ExecStarted {
        /// The container.
        container: ContainerId,
        /// The exec.
        exec: ExecId,
        /// Its pid.
        pid: u32,
    },
    /// TaskExit, once per process; a container's own is the last one of the container.
    Exited {
        /// The process.
        target: Target,
        /// The pid it had.
        pid: u32,
        /// As shown to callers.
        exit: Exit,
    },
    /// TaskDelete.
    Deleted {
        /// The container.
        container: ContainerId,
        /// What it was.
        deleted: Deleted,
    },
    /// TaskOOM.
    OutOfMemory {
        /// The container.
        container: ContainerId,
    },
    /// TaskPaused.
    Paused {
        /// The container.
        container: ContainerId,
    },
    /// TaskResumed.
    Resumed {
        /// The container.
        container: ContainerId,
    },
}

impl Notice {
    /// The container that the event is about.
    pub fn container(&self) -> &ContainerId {
        match self {
            Self::Exited { target, .. } => &target.container,
            Self::Created { container, .. }
            | Self::Started { container, .. }
            | Self::ExecAdded { container, .. }
            | Self::ExecStarted { container, .. }
            | Self::Deleted { container, .. }
            | Self::OutOfMemory { container }
            | Self::Paused { container }
            | Self::Resumed { container } => container,
        }
    }
}
