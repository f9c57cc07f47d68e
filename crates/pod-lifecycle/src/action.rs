//! What the pod wants done. Actions are data; the driver executes them in the order in which they come.

use std::fmt;
use std::time::Duration;

use pod_spec::{GateAction, Signal};

use crate::event::{ContainerId, ExecId, Exit, RequestId, Target};
use crate::history::{Milestone, SignalCause};

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
    /// Answer a request. Each request gets exactly one answer.
    Reply {
        /// The request.
        request: RequestId,
        /// The answer.
        result: Result<Reply, Refusal>,
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
    Tell {
        /// The container.
        container: ContainerId,
        /// Without prefix and line end.
        line: String,
        /// Where the line goes besides.
        to: Tell,
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

/// The id of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(pub u64);

/// An operation that takes time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// First create of a container: stdio, rootfs mounts, `runtime create`. On failure all of it is undone.
    Create,
    /// Create of an init that has completed already (I4): its stdio is opened, nothing is mounted or run.
    CreateSpent,
    /// `runtime start`.
    Start,
    /// In-place restart (R6): `runtime delete`, then `runtime create` in the same bundle with stdio and rootfs
    /// kept, limits applied again.
    Recreate,
    /// End every process left in the container's cgroup, bounded in time.
    KillRemaining,
    /// The final delete: `runtime delete`, stdio closed, rootfs unmounted.
    Remove,
    /// `runtime pause`.
    Pause,
    /// `runtime resume`.
    Resume,
    /// Write the checkpoint that this request asks for.
    Checkpoint(RequestId),
    /// First half of a create from a checkpoint: stdio and rootfs mounts, undone on failure. Nothing runs.
    PrepareRestore,
    /// The other half: `runtime restore`.
    Restore,
    /// Start a registered exec.
    StartExec(ExecId),
    /// Forget an exec.
    RemoveExec(ExecId),
    /// Ask once whether a gate may open. `Outcome::Ok` = yes.
    Check(Check),
    /// Run a command in the container as its program runs: same user, environment, directory and limits; its output
    /// goes where the container's goes. `Outcome::Ok` = it exited with 0; otherwise the failure's text says how it
    /// ended. It is no exec of a caller: it has no id and no events. It ends by itself or with its container.
    RunHook {
        /// What it is for.
        hook: Hook,
        /// The argument vector.
        command: Vec<String>,
    },
}

/// What a command in a plan is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hook {
    /// H1: the stop of the pod has begun.
    OnTerminate,
    /// H2: the container's stop signal is next.
    PreStop,
    /// V4: the container takes over from its partner.
    Migrate,
}

impl fmt::Display for Hook {
    /// The key of its annotation.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OnTerminate => "on-terminate",
            Self::PreStop => "pre-stop",
            Self::Migrate => "migrate",
        })
    }
}

/// One check of a container whose gate is closed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Check {
    /// Has the program been exec'd (U1)? Waits for it up to the given time.
    Executed {
        /// Longest wait.
        timeout: Duration,
    },
    /// A probe of U2.
    Probe {
        /// What to probe.
        action: GateAction,
        /// A probe that takes longer has failed.
        timeout: Duration,
    },
}

/// How far a signal goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The target process.
    Process,
    /// Every process of the container (`all=true`).
    All,
}

/// Where a line goes besides the container's stderr.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tell {
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

/// A refusal, in words that a user can act on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// Which kind of error the caller gets.
    pub kind: RefusalKind,
    /// Names the container and the reason.
    pub message: String,
}

impl Refusal {
    pub(crate) fn new(kind: RefusalKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(RefusalKind::NotFound, message)
    }
    pub(crate) fn precondition(message: impl Into<String>) -> Self {
        Self::new(RefusalKind::FailedPrecondition, message)
    }
}

/// The kinds of refusal that containerd distinguishes (CONTRACT §9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// No such container or exec, or its process has finished.
    NotFound,
    /// The id is taken.
    AlreadyExists,
    /// Not in this state.
    FailedPrecondition,
    /// The request itself is wrong.
    InvalidArgument,
    /// Not served.
    Unimplemented,
    /// Something failed underneath.
    Internal,
    /// It took too long.
    DeadlineExceeded,
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
