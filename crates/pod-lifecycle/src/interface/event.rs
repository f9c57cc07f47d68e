//! What can happen to a pod: requests of callers, completions of podshim's own operations, exits, time.
//!
//! Decides nothing: what an event means is `handlers`.

use std::collections::BTreeSet;
use std::time::Duration;

use pod_spec::Signal;

use crate::interface::exit::Exit;
use crate::interface::id::{ContainerId, ExecId, OpId, RequestId, Target};
use crate::interface::operation::Reach;
use crate::interface::outcome::Outcome;
use crate::interface::spec::ContainerSpec;
use crate::interface::time::WallTime;

/// Something that happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// A request of a caller; it is answered by exactly one reply with the same id.
    Request {
        /// The caller's handle for the reply.
        id: RequestId,
        /// The request.
        request: Request,
    },
    /// The caller of a Wait is gone and gets no reply any more. For other requests this changes nothing: what they
    /// began goes on.
    Abandoned {
        /// The id of its request.
        id: RequestId,
    },
    /// An operation that [`crate::Action::Run`] started has ended.
    Done {
        /// The id the action carried.
        op: OpId,
        /// How it ended.
        outcome: Outcome,
        /// When it ended.
        at: WallTime,
    },
    /// A process has exited: a container's init (`exec` is `None`) or one of its execs.
    Exited {
        /// The process.
        target: Target,
        /// Its status and time.
        exit: Exit,
    },
    /// The kernel killed a process of that container for memory.
    OutOfMemory {
        /// The container.
        container: ContainerId,
    },
    /// A request from outside the container API to stop the whole pod in order (T12c): SIGTERM or SIGINT to the shim,
    /// or Stop over its control API.
    StopPod {
        /// The budget; the pod's own grace when `None`.
        grace: Option<Duration>,
    },
    /// Nothing but time has passed.
    Tick,
}

/// A caller's request. Reads (State, Pids, Stats) are not requests: see [`crate::Pod::view`].
#[derive(Clone, Debug)]
pub enum Request {
    /// Create the container's process without running its program.
    Create {
        /// The new container.
        container: ContainerId,
        /// What podshim needs to know of its OCI spec.
        spec: Box<ContainerSpec>,
    },
    /// Register an exec.
    Exec {
        /// The container and the new exec id.
        container: ContainerId,
        /// The new exec.
        exec: ExecId,
    },
    /// Start a created container or a registered exec.
    Start(Target),
    /// Send a signal.
    Kill {
        /// The process.
        target: Target,
        /// The signal.
        signal: Signal,
        /// Init only, or every process of the container.
        reach: Reach,
    },
    /// Answer when the process has exited (and the exit is shown).
    Wait(Target),
    /// Forget a container or exec that has ended.
    Delete(Target),
    /// Let the standby of a pair take over; the name of either container will do (V3). Answered when the container that
    /// was active has ended, or when the switch has failed (V5).
    Switch(String),
    /// These are the names of the pod's init and ephemeral containers, as its object has them (S15).
    KubeletsOwn(BTreeSet<String>),
    /// Stop the pod in order, and start it again in place (R14). Answered when the stop has begun.
    Restart,
    /// Freeze.
    Pause(ContainerId),
    /// Thaw.
    Resume(ContainerId),
    /// Write a checkpoint of a running program.
    Checkpoint {
        /// The container.
        container: ContainerId,
        /// What happens to the program then.
        after: AfterCheckpoint,
    },
}

/// What happens to a program when its checkpoint is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterCheckpoint {
    /// It goes on.
    LeaveRunning,
    /// The runtime kills it.
    End,
}
