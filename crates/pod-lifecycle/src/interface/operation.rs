//! The operations that take time; the driver runs them.
//!
//! Decides nothing: when one is due is a rule, or a handler.

use std::fmt;
use std::time::Duration;

use pod_spec::GateAction;

use crate::interface::id::{ExecId, RequestId};

/// An operation that takes time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// First create of a container: stdio, rootfs mounts, `runtime create`. On failure all of it is undone.
    Create,
    /// Create of an init that has completed already (I4): its stdio is opened, nothing is mounted or run.
    CreateCompleted,
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
