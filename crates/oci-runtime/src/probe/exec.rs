//! `exec:`: a program in the container that ends with 0.

use std::time::Duration;

use processes::SignalNumber;
use streams::stdio::ChildStdio;
use tracing::warn;

use super::result::{ProbeResult, timed_out};
use crate::runtime::{Beside, Container};

/// Runs a process in the container and succeeds if it ends with 0 within `timeout`.
///
/// Its streams are `/dev/null`. At the timeout it is killed. Not cancel-safe: run it with `spawn_local`, or a process may be left in
/// the container.
pub async fn exec(container: &Container, process: &Beside, timeout: Duration) -> ProbeResult {
    let launched = match container.run_beside(process, ChildStdio::null()).await {
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
