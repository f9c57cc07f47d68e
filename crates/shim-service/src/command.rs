//! What the ttrpc handlers ask of the owner, and the handle they ask through.
//!
//! Owns the messages alone. A handler may never touch the pod's state itself: containerd drops handlers at any await.

use std::time::Duration;

use control_api::{EventsResponse, InspectResponse};
use nix::unistd::Pid;
use pod_lifecycle::{ContainerId, Reply, Request, Status, Target, View, WallTime};
use protobuf::well_known_types::any::Any;
use streams::console::TerminalSize;
use tokio::sync::{mpsc, oneshot};

use crate::details::{CheckpointDetails, CreateDetails, ExecDetails};
use crate::error::ServiceError;
use crate::pod_sandbox::SandboxDetails;
use crate::streams::StreamAddresses;

/// Where the owner sends the answer to a command.
pub(crate) type Answer<T> = oneshot::Sender<Result<T, ServiceError>>;

/// One request to the owner.
#[derive(Debug)]
pub(crate) enum Command {
    /// Create a container; the owner reads its spec.
    Create { container: ContainerId, details: Box<CreateDetails>, answer: Answer<Reply> },
    /// Register an exec.
    Exec {
        container: ContainerId,
        exec: pod_lifecycle::ExecId,
        details: Box<ExecDetails>,
        answer: Answer<Reply>,
    },
    /// Any other request that the pod's state machine answers.
    Pod { request: Request, answer: Answer<Reply> },
    /// State, answered at once: containerd waits for at most 2 s.
    State { target: Target, answer: Answer<TaskState> },
    /// Pids, answered at once, never empty for a live container (F13).
    Pids { container: ContainerId, answer: Answer<Vec<ContainerProcess>> },
    /// Stats, answered at once, also after the exit.
    Stats { container: ContainerId, answer: Answer<Any> },
    /// Write a container's state to a directory.
    Checkpoint { container: ContainerId, details: Box<CheckpointDetails>, answer: Answer<Reply> },
    /// Delete a container or an exec that has ended. `limit` is how long the caller waits, if it has set a timeout.
    Delete { target: Target, limit: Option<Duration>, answer: Answer<Reply> },
    /// Set resource limits, given as JSON.
    Update { container: ContainerId, resources: Vec<u8>, answer: Answer<()> },
    /// Set the terminal's size.
    Resize { target: Target, size: TerminalSize, answer: Answer<()> },
    /// Close stdin.
    CloseStdin { target: Target, answer: Answer<()> },
    /// A request of the Sandbox API that no request of a task stands for.
    Sandbox(SandboxCommand),
    /// A request of podshim's own API.
    Control(ControlCommand),
    /// End the shim if it has nothing left to serve.
    Shutdown { answer: Answer<()> },
}

/// A request of the Sandbox API.
#[derive(Debug)]
pub(crate) enum SandboxCommand {
    /// Make what the pod's containers share.
    Create { sandbox: ContainerId, details: Box<SandboxDetails>, answer: Answer<Reply> },
    /// How it is, answered at once.
    Status { sandbox: ContainerId, answer: Answer<SandboxStatus> },
    /// The numbers of the pod's cgroup, answered at once.
    Metrics { sandbox: ContainerId, answer: Answer<Any> },
}

/// What SandboxStatus and StartSandbox answer.
#[derive(Debug)]
pub(crate) struct SandboxStatus {
    pub(crate) status: Status,
    pub(crate) created_at: WallTime,
    /// The default: not yet.
    pub(crate) exited_at: WallTime,
    /// JSON for `crictl inspectp`.
    pub(crate) info: String,
    /// JSON for plugins of NRI.
    pub(crate) spec: Vec<u8>,
}

/// A request of podshim's own API, which operators use.
#[derive(Debug)]
pub(crate) enum ControlCommand {
    /// The pod as it is.
    Inspect { answer: Answer<InspectResponse> },
    /// Begin an ordered stop of the pod (T12c); answered at once.
    Stop { grace: Option<Duration>, answer: Answer<()> },
    /// Begin a restart of the pod (R14): one for each value, if it has one.
    Restart { request: String, answer: Answer<Reply> },
    /// What has happened after that event.
    Events { after: u64, long_poll: LongPoll, answer: Answer<EventsResponse> },
}

/// Whether an Events request is answered only when there is an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LongPoll {
    No,
    Yes,
}

/// What State answers.
#[derive(Debug)]
pub(crate) struct TaskState {
    pub(crate) view: View,
    pub(crate) bundle: String,
    pub(crate) streams: StreamAddresses,
}

/// A process of a container.
#[derive(Debug)]
pub(crate) struct ContainerProcess {
    pub(crate) pid: Pid,
    /// The exec whose first process it is.
    pub(crate) exec: Option<String>,
}

/// How handlers reach the owner; all clones reach the same one.
#[derive(Clone, Debug)]
pub(crate) struct OwnerHandle {
    commands: mpsc::Sender<Command>,
}

impl OwnerHandle {
    /// A handle and the owner's end of it. Where the owner lags behind, the bound slows its callers down.
    pub(crate) fn channel() -> (Self, mpsc::Receiver<Command>) {
        let (commands, receiver) = mpsc::channel(256);
        (Self { commands }, receiver)
    }

    /// Sends a command and waits for its answer. Dropping the future loses only the answer.
    pub(crate) async fn ask<T>(&self, command: impl FnOnce(Answer<T>) -> Command) -> Result<T, ServiceError> {
        let (answer, answered) = oneshot::channel();
        self.commands.send(command(answer)).await.map_err(|_| ServiceError::ShuttingDown)?;
        answered.await.map_err(|_| ServiceError::ShuttingDown)?
    }
}
