//! What handlers may ask of the owner, and the handle they ask through.

use std::time::Duration;

use control_api::{EventsResponse, InspectResponse};
use nix::unistd::Pid;
use oci_runtime::console::TerminalSize;
use pod_lifecycle::{ContainerId, Reply, Request, Target, View};
use protobuf::well_known_types::any::Any;
use tokio::sync::{mpsc, oneshot};

use crate::details::{CheckpointDetails, CreateDetails, ExecDetails};
use crate::error::ServiceError;
use crate::streams::StreamAddresses;

/// The sending half of a reply.
pub(crate) type Answer<T> = oneshot::Sender<Result<T, ServiceError>>;

/// One thing asked of the owner.
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
    /// Any other request the pod itself answers.
    Pod { request: Request, answer: Answer<Reply> },
    /// State: answered at once (containerd gives it 2 s).
    State { target: Target, answer: Answer<TaskState> },
    /// Pids: answered at once, never empty for a live container (F13).
    Pids { container: ContainerId, answer: Answer<Vec<ContainerProcess>> },
    /// Stats: answered at once, also after the exit.
    Stats { container: ContainerId, answer: Answer<Any> },
    /// Write down a container's state.
    Checkpoint { container: ContainerId, details: Box<CheckpointDetails>, answer: Answer<Reply> },
    /// Forget what has ended. `limit` is what the caller waits at most, if it said.
    Delete { target: Target, limit: Option<Duration>, answer: Answer<Reply> },
    /// New resource limits, as JSON.
    Update { container: ContainerId, resources: Vec<u8>, answer: Answer<()> },
    /// The terminal's size.
    Resize { target: Target, size: TerminalSize, answer: Answer<()> },
    /// No more input.
    CloseStdin { target: Target, answer: Answer<()> },
    /// What only operators ask.
    Control(ControlCommand),
    /// End the shim if it has nothing left to serve.
    Shutdown { answer: Answer<()> },
}

/// What only operators ask.
#[derive(Debug)]
pub(crate) enum ControlCommand {
    /// The pod as it is.
    Inspect { answer: Answer<InspectResponse> },
    /// An ordered stop (T12c); answered at once.
    Stop { grace: Option<Duration>, answer: Answer<()> },
    /// What has happened after that event; with `Wait` answered when there is something.
    Events { after: u64, long_poll: LongPoll, answer: Answer<EventsResponse> },
}

/// What is answered where nothing has happened.
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
    /// Set for the init of an exec.
    pub(crate) exec: Option<String>,
}

/// How handlers reach the owner. Clones reach the same one.
#[derive(Clone, Debug)]
pub(crate) struct OwnerHandle {
    commands: mpsc::Sender<Command>,
}

impl OwnerHandle {
    /// A handle and the owner's end of it. The bound only slows callers down when the owner is behind.
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
