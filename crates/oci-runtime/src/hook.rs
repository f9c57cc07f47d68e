//! Hooks: a command in a container, run to its end, whose output is the container's (rules H1, H2).
//!
//! One call is one run. When a hook runs and what waits for it is `pod-lifecycle`'s.

use std::time::Duration;

use thiserror::Error;
use tokio::time::Instant;

use crate::{
    runtime::{Container, RuntimeError},
    stdio::Attempt,
};

#[cfg(test)]
mod tests;

/// What a hook's background processes may still write after its end: as long as those of any exec (trap 11).
const DRAIN_LIMIT: Duration = Duration::from_secs(2);

/// Why a hook did not succeed.
#[derive(Debug, Error)]
pub enum HookError {
    /// It did not come to run.
    #[error(transparent)]
    NotRun(#[from] RuntimeError),
    /// It ended, and not with 0.
    #[error("exit status {0}")]
    Status(u8),
    /// A signal ended it: its container's end, most of all.
    #[error("killed by signal {0}")]
    Signal(u8),
}

/// Runs a process in the container and waits for its end, however long that takes.
///
/// `process` is an OCI process as JSON, `streams` come from [`Stdio::attempt_beside`](crate::stdio::Stdio::attempt_beside).
/// Not cancel-safe: run it with `spawn_local`, or the process is left to itself.
///
/// # Errors
/// What the OCI runtime says when it cannot be started; any end but exit status 0.
pub async fn run(
    container: &Container,
    exec_id: &str,
    process: &[u8],
    streams: Attempt,
) -> Result<(), HookError> {
    let Attempt { child, mut held_back } = streams;
    let launched = container.exec(exec_id, process, child, None).await?;
    held_back.begin();
    let exit = launched.exit.await;
    // Beside: what waits for the hook does not wait for a process that it left behind.
    tokio::task::spawn_local(async move { held_back.end_by(Instant::now() + DRAIN_LIMIT).await });
    match (exit.code, exit.signal) {
        (_, Some(signal)) => Err(HookError::Signal(signal)),
        (0, None) => Ok(()),
        (code, None) => Err(HookError::Status(code)),
    }
}
