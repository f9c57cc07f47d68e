//! `tcp:`: a port that takes a connection.

use std::time::Duration;

use tokio::time::Instant;

use super::connect::{Endpoint, connect};
use super::result::{ProbeResult, timed_out};
use crate::process::Process;

/// Connects to `endpoint` inside the network namespace of `process` and succeeds if a program accepts within `timeout`,
/// which covers all of its addresses. Cancel-safe.
pub async fn tcp(process: &Process, endpoint: Endpoint, timeout: Duration) -> ProbeResult {
    match tokio::time::timeout(timeout, connect(process, endpoint, Instant::now() + timeout)).await {
        Ok(Ok(_)) => ProbeResult::Success,
        Ok(Err(reason)) => ProbeResult::Failure(format!("tcp:{endpoint} {reason}")),
        Err(_) => ProbeResult::Failure(format!("tcp:{endpoint} {}", timed_out(timeout))),
    }
}
