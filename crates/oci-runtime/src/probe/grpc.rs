//! `grpc:` probes: one call of `grpc.health.v1.Health/Check` inside the container's network namespace (rule U2).
//!
//! Owns the question and which answer is a success. The other side is the container's program, which is not trusted: the
//! answer is bounded by [`Call`].

use std::{net::SocketAddr, time::Duration};

use grpc_call::{
    Call, CallError,
    message::{self, Value},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::Instant,
};

use super::connect::{Endpoint, connect};
use super::result::{ProbeResult, timed_out};
use crate::process::Process;

/// A `HealthCheckResponse` has two bytes and their prefix.
const ANSWER_LONGEST: usize = 1024;
/// `HealthCheckResponse.ServingStatus.SERVING`.
const SERVING: u64 = 1;

/// Asks the health service at `port` about `service` (the empty name: the whole server) inside the network namespace of
/// `process`; succeeds if it answers SERVING within `timeout`, which covers the whole attempt.
///
/// Only the first address that accepts is asked. Cancel-safe.
pub async fn grpc(process: &Process, port: u16, service: &str, timeout: Duration) -> ProbeResult {
    let endpoint = Endpoint { host: None, port };
    let attempt = async {
        let (stream, address) = connect(process, endpoint, Instant::now() + timeout).await?;
        match check(stream, address, service).await? {
            SERVING => Ok(()),
            status => Err(name_of(status).to_owned()),
        }
    };
    let failure = match tokio::time::timeout(timeout, attempt).await {
        Ok(Ok(())) => return ProbeResult::Success,
        Ok(Err(reason)) => reason,
        Err(_) => timed_out(timeout),
    };
    let slash = if service.is_empty() { "" } else { "/" };
    ProbeResult::Failure(format!("grpc:{port}{slash}{service}: {failure}"))
}

/// The status that the server answers.
async fn check(mut stream: TcpStream, address: SocketAddr, service: &str) -> Result<u64, String> {
    let request = if service.is_empty() { Vec::new() } else { message::field(1, service.as_bytes()) };
    let mut call = Call::new("/grpc.health.v1.Health/Check", &address.to_string(), &request, ANSWER_LONGEST);
    stream.write_all(&call.request()).await.map_err(|error| error.to_string())?;
    let mut bytes = [0; 512];
    loop {
        let length = stream.read(&mut bytes).await.map_err(|error| error.to_string())?;
        if length == 0 {
            return Err("the connection was closed before an answer".to_owned());
        }
        let received = call.receive(&bytes[..length]).map_err(reason)?;
        if let Some(answer) = received.message {
            // proto3 leaves out a status of 0.
            return Ok(message::first(&answer, 1).and_then(Value::number).unwrap_or(0));
        }
        // If the server has gone, the next read says so, after what it sent before.
        let _ = stream.write_all(&received.reply).await;
    }
}

fn reason(error: CallError) -> String {
    match error {
        // The code is in headers that are not read: NOT_FOUND or UNIMPLEMENTED.
        CallError::Refused => "no service of that name, or no grpc.health.v1".to_owned(),
        other => other.to_string(),
    }
}

fn name_of(status: u64) -> &'static str {
    match status {
        0 => "UNKNOWN",
        2 => "NOT_SERVING",
        3 => "SERVICE_UNKNOWN",
        _ => "a status that grpc.health.v1 does not have",
    }
}
