//! Probes a container: the `exec:`, `tcp:`, `http:` and `file:` gates of rule U2.
//!
//! One call is one attempt. `pod-lifecycle` owns period, delay and thresholds.

use std::{fmt, time::Duration};

use tokio::time::Instant;
use tracing::warn;

use crate::{
    process::{Process, SignalNumber},
    runtime::Container,
    stdio::ChildStdio,
};

mod connect;
mod file;
mod http;
#[cfg(test)]
mod tests;

pub use connect::Endpoint;
pub use file::{FileLooks, file};
pub use http::http;
#[cfg(any(test, fuzzing))]
pub(crate) use http::status_of;

/// Result of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeResult {
    /// The container answered.
    Success,
    /// It did not; the text gives the reason, in words for people.
    Failure(String),
}

impl fmt::Display for ProbeResult {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Success => formatter.write_str("succeeded"),
            Self::Failure(reason) => formatter.write_str(reason),
        }
    }
}

/// Runs a process in the container and succeeds if it ends with 0 within `timeout`.
///
/// `process` is an OCI process as JSON; its streams are `/dev/null`. At the timeout it is killed. Not cancel-safe: run
/// it with `spawn_local`, or a process may be left in the container.
pub async fn exec(container: &Container, exec_id: &str, process: &[u8], timeout: Duration) -> ProbeResult {
    let launched = match container.exec(exec_id, process, ChildStdio::null(), None).await {
        Ok(launched) => launched,
        Err(error) => return ProbeResult::Failure(error.to_string()),
    };
    match tokio::time::timeout(timeout, launched.exit).await {
        Ok(exit) if exit.code == 0 => ProbeResult::Success,
        Ok(exit) => ProbeResult::Failure(match exit.signal {
            Some(signal) => format!("killed by signal {signal}"),
            None => format!("exit status {}", exit.code),
        }),
        Err(_) => {
            if let Err(error) = launched.process.signal(SignalNumber::KILL) {
                warn!(container = container.id(), %error, "cannot kill an exec probe that exceeded its timeout");
            }
            ProbeResult::Failure(timed_out(timeout))
        }
    }
}

/// Connects to `endpoint` inside the network namespace of `process` and succeeds if a program accepts within `timeout`,
/// which covers all of its addresses. Cancel-safe.
pub async fn tcp(process: &Process, endpoint: Endpoint, timeout: Duration) -> ProbeResult {
    match tokio::time::timeout(timeout, connect::connect(process, endpoint, Instant::now() + timeout)).await {
        Ok(Ok(_)) => ProbeResult::Success,
        Ok(Err(reason)) => ProbeResult::Failure(format!("tcp:{endpoint} {reason}")),
        Err(_) => ProbeResult::Failure(format!("tcp:{endpoint} {}", timed_out(timeout))),
    }
}

fn timed_out(timeout: Duration) -> String {
    format!("timed out after {timeout:?}")
}
