//! `state`.

use serde::Deserialize;

use super::command::Arguments;
use super::container::Container;
use super::error::{Operation, RuntimeError};

/// Status of a container as its runtime sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuntimeStatus {
    /// `create` is at work.
    Creating,
    /// Created, not started.
    Created,
    /// The user program runs.
    Running,
    /// Frozen.
    Paused,
    /// Its init has ended.
    Stopped,
}

/// Answer of the runtime's `state`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct RuntimeState {
    /// Status.
    pub status: RuntimeStatus,
    /// Pid of init; 0 when stopped.
    #[serde(default)]
    pub pid: i32,
}

impl Container {
    /// `state`: what the runtime reports.
    ///
    /// # Errors
    /// The runtime fails, or does not know the container.
    pub async fn state(&self) -> Result<RuntimeState, RuntimeError> {
        let mut arguments = Arguments::new("state");
        arguments.push(&*self.id);
        let output = self.run(Operation::State, arguments, None).await?;
        serde_json::from_slice(&output).map_err(|error| RuntimeError::Output {
            operation: Operation::State,
            id: self.id.to_string(),
            reason: error.to_string(),
        })
    }
}
