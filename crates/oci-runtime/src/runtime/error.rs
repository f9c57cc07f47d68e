//! How a call of the OCI runtime can fail, and what its error text means.
//!
//! Owns the recognition of error texts: runtimes report the reason of a failure in prose only.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use nix::unistd::Pid;
use own_processes::exec::ExecError;
use thiserror::Error;

use crate::bundle::BundleError;

/// A command of the runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// `create`.
    Create,
    /// `start`.
    Start,
    /// `delete`.
    Delete,
    /// `kill`.
    Kill,
    /// `exec`.
    Exec,
    /// `pause`.
    Pause,
    /// `resume`.
    Resume,
    /// `update`.
    Update,
    /// `state`.
    State,
    /// `checkpoint`.
    Checkpoint,
    /// `restore`.
    Restore,
}

impl Operation {
    /// Time after which podshim kills the runtime.
    ///
    /// Creating and starting run OCI hooks and may wait for a busy machine; two minutes is the kubelet's own limit for
    /// a CRI call. The other commands only write cgroup files and send signals.
    pub fn time_limit(self) -> Duration {
        match self {
            Self::Create | Self::Start | Self::Exec => Duration::from_secs(120),
            Self::Delete | Self::Kill | Self::Pause | Self::Resume | Self::Update => Duration::from_secs(30),
            Self::State => Duration::from_secs(10),
            // They write or read all of a container's memory.
            Self::Checkpoint | Self::Restore => Duration::from_secs(600),
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Create => "create",
            Self::Start => "start",
            Self::Delete => "delete",
            Self::Kill => "kill",
            Self::Exec => "exec",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Update => "update",
            Self::State => "state",
            Self::Checkpoint => "checkpoint",
            Self::Restore => "restore",
        })
    }
}

/// A failed call of the runtime.
#[derive(Debug, Error)]
pub enum RuntimeError {
    /// The binary could not be started.
    #[error("cannot run the OCI runtime {} to {operation} container {id:?}: {source}", binary.display())]
    Spawn {
        /// The command.
        operation: Operation,
        /// The container.
        id: String,
        /// The binary.
        binary: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The runtime refused or failed. The message is its own, in the form of containerd's shim.
    #[error("OCI runtime {operation} failed: {message}")]
    Failed {
        /// The command.
        operation: Operation,
        /// The container.
        id: String,
        /// The runtime's last error message.
        message: String,
    },
    /// Another process killed the runtime, in the middle of its work or after it.
    #[error("OCI runtime {operation} failed: {message}")]
    Killed {
        /// The command.
        operation: Operation,
        /// The container.
        id: String,
        /// The runtime's last error message, or the signal.
        message: String,
    },
    /// The runtime did not finish in time and was killed.
    #[error("OCI runtime {operation} of container {id:?} took more than {} s and was killed", limit.as_secs())]
    TimedOut {
        /// The command.
        operation: Operation,
        /// The container.
        id: String,
        /// The limit.
        limit: Duration,
    },
    /// The container ended during an exec, but the runtime did not end. podshim killed it.
    #[error("OCI runtime {operation} of container {id:?} was killed: the container ended first")]
    Outlived {
        /// The command.
        operation: Operation,
        /// The container.
        id: String,
    },
    /// Nothing waits for the call any more. podshim killed the runtime.
    #[error("OCI runtime {operation} of container {id:?} was killed: nothing waits for it any more")]
    GivenUp {
        /// The command.
        operation: Operation,
        /// The container.
        id: String,
    },
    /// The runtime's answer cannot be parsed.
    #[error("OCI runtime {operation} of container {id:?} gave an answer that cannot be read: {reason}")]
    Output {
        /// The command.
        operation: Operation,
        /// The container.
        id: String,
        /// What is wrong with it.
        reason: String,
    },
    /// podshim itself could not start a process in the container.
    #[error("container {id:?}: {source}")]
    Beside {
        /// The container.
        id: String,
        /// What could not be done.
        source: ExecError,
    },
    /// The container's init has ended, and all its processes end with it.
    #[error("container {id:?} has ended: no process can be started in it")]
    Ended {
        /// The container.
        id: String,
    },
    /// The container's processes are frozen, and a new one would be too.
    #[error("container {id:?} is paused: no process can be started in it")]
    Paused {
        /// The container.
        id: String,
    },
    /// A file in the bundle that the command needs is unusable.
    #[error("OCI runtime {operation} of container {id:?}: {source}")]
    Bundle {
        /// The command.
        operation: Operation,
        /// The container.
        id: String,
        /// Which file, and why.
        source: BundleError,
    },
    /// The process the runtime reported cannot be adopted.
    #[error("OCI runtime {operation} of container {id:?} reported process {pid}: {source}")]
    Adopt {
        /// The command.
        operation: Operation,
        /// The container.
        id: String,
        /// The reported pid.
        pid: Pid,
        /// Why it cannot be adopted.
        source: io::Error,
    },
}

impl RuntimeError {
    /// Whether the container's init is not running, or no longer.
    ///
    /// Matches the words of runc 1.0 to 1.3 and of crun 1.8 to 1.28; containerd's shim looks for the same.
    pub fn is_not_running(&self) -> bool {
        const WORDS: &[&str] = &[
            "container not running",
            "process already finished",
            "no such process",
            "cannot exec in a stopped container",
            "cannot exec a container that has stopped",
            "is not running",
            "container not in created or running state",
        ];
        self.says(WORDS)
    }

    /// Whether the runtime has no such container.
    pub fn is_not_found(&self) -> bool {
        // crun names what is missing: the file in its state directory; for a delete, the directory.
        let deleted = matches!(self, Self::Failed { operation: Operation::Delete, .. });
        let crun = self.says(&["/status`"]) || (deleted && self.says(&["cannot open directory"]));
        self.says(&["container does not exist"]) || (crun && self.says(&["no such file"]))
    }

    /// Whether the runtime may have left parts of a container behind after this failed create.
    pub(crate) fn may_have_left_a_container(&self) -> bool {
        match self {
            // A runtime that fails in an orderly way removes what it made. If the message is that the id is taken, the
            // container is not podshim's to delete.
            Self::Failed { .. }
            | Self::Spawn { .. }
            | Self::Beside { .. }
            | Self::Paused { .. }
            | Self::Ended { .. } => false,
            Self::Killed { .. }
            | Self::TimedOut { .. }
            | Self::Outlived { .. }
            | Self::GivenUp { .. }
            | Self::Output { .. }
            | Self::Bundle { .. }
            | Self::Adopt { .. } => true,
        }
    }

    fn says(&self, words: &[&str]) -> bool {
        let Self::Failed { message, .. } = self else { return false };
        let message = message.to_ascii_lowercase();
        words.iter().any(|word| message.contains(word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(operation: Operation, message: &str) -> RuntimeError {
        RuntimeError::Failed { operation, id: "c".into(), message: message.into() }
    }

    #[test]
    fn the_words_of_runc_and_crun_are_recognised() {
        assert!(failed(Operation::Kill, "container not running").is_not_running());
        assert!(failed(Operation::Kill, "kill container: No such process").is_not_running());
        assert!(!failed(Operation::Kill, "permission denied").is_not_running());
        assert!(failed(Operation::Delete, "container does not exist").is_not_found());
        let crun = "error opening file `/run/crun/c/status`: No such file or directory";
        assert!(failed(Operation::Delete, crun).is_not_found());
        let crun = "cannot open directory `/run/crun/c`: No such file or directory";
        assert!(failed(Operation::Delete, crun).is_not_found());
        assert!(!failed(Operation::Create, crun).is_not_found());
        // A missing program, bind source or hook gives the same words and means something else.
        assert!(!failed(Operation::Create, "exec: stat /x: no such file or directory").is_not_found());
        assert!(!failed(Operation::Start, "error running hook: /x does not exist").is_not_found());
    }
}
