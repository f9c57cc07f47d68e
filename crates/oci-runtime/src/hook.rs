//! Hooks: a command in a container, run to its end. Its output goes to the container's streams (rules H1, H2).
//!
//! One call is one run. `pod-lifecycle` decides when a hook runs and what waits for it.

use std::time::Duration;

use streams::head::{Attempt, PendingAttempt};
use streams::stdio::{ChildStdio, StdioError};
use thiserror::Error;
use tracing::warn;

use crate::runtime::{Beside, Container, RuntimeError};

#[cfg(test)]
mod tests;

/// How long a hook's background processes may still write after its end, as for any exec (trap 11).
const DRAIN_LIMIT: Duration = Duration::from_secs(2);

/// Why a hook did not succeed.
#[derive(Debug, Error)]
pub enum HookError {
    /// It was not run.
    #[error(transparent)]
    NotRun(#[from] RuntimeError),
    /// It was not run: there are no streams for it.
    #[error(transparent)]
    Streams(#[from] StdioError),
    /// It ended with another status than 0.
    #[error("exit status {0}")]
    Status(u8),
    /// A signal ended it, most often because its container ended.
    #[error("killed by signal {0}")]
    Signal(u8),
}

/// Runs a process in the container and waits for its end, without a time limit.
///
/// `streams` come from [`Streams::attempt_beside`](streams::head::Streams::attempt_beside). Not cancel-safe: run it with
/// `spawn_local`, or the process goes on unwatched.
///
/// # Errors
/// Why the process could not be started; any end other than exit status 0.
pub async fn run(container: &Container, process: &Beside, streams: PendingAttempt) -> Result<(), HookError> {
    let (child, held_back) = match streams.ready_unless_away().await {
        Ok(Attempt { child, held_back }) => (child, Some(held_back)),
        // H1: another container decides on what of it is seen, and not on whether it runs.
        Err(error) if error.is_of_a_hand_that_is_away() => {
            warn!(container = container.id(), %error, "what a hook writes is lost");
            (ChildStdio::null(), None)
        }
        Err(error) => return Err(error.into()),
    };
    let launched = container.run_beside(process, child).await?;
    if let Some(held_back) = &held_back {
        held_back.begin();
    }
    let exit = launched.exit.await;
    if let Some(held_back) = held_back {
        // In a task of its own: what waits for the hook must not wait for a process that the hook left behind.
        tokio::task::spawn_local(held_back.end_within(DRAIN_LIMIT));
    }
    match (exit.code, exit.signal) {
        (_, Some(signal)) => Err(HookError::Signal(signal)),
        (0, None) => Ok(()),
        (code, None) => Err(HookError::Status(code)),
    }
}
