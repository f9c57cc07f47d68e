//! `grpc:` probes: one call of `grpc.health.v1.Health/Check` inside the container's network namespace (rule U2).
//!
//! Owns the question and which answer is a success. The other side is the container's program, which is not trusted: the
//! answer is bounded by [`Call`].

use std::net::SocketAddr;

use grpc_call::message::{self, Value};
use grpc_call::{Call, CallError};

use super::deadline::{Connection, Failed};

/// A `HealthCheckResponse` has two bytes and their prefix.
const ANSWER_LONGEST: usize = 1024;
/// `HealthCheckResponse.ServingStatus.SERVING`.
const SERVING: u64 = 1;

pub(super) fn check(connection: Connection, address: SocketAddr, service: &str) -> Result<(), Failed> {
    match status(connection, address, service)? {
        SERVING => Ok(()),
        status => Err(Failed::Because(name_of(status).to_owned())),
    }
}

/// The status that the server answers.
fn status(mut connection: Connection, address: SocketAddr, service: &str) -> Result<u64, Failed> {
    let request = if service.is_empty() { Vec::new() } else { message::field(1, service.as_bytes()) };
    let mut call = Call::new("/grpc.health.v1.Health/Check", &address.to_string(), &request, ANSWER_LONGEST);
    connection.write_all(&call.request())?;
    let mut bytes = [0; 512];
    loop {
        let length = connection.read(&mut bytes)?;
        if length == 0 {
            return Err(Failed::Because("the connection was closed before an answer".to_owned()));
        }
        let received = call.receive(&bytes[..length]).map_err(|error| Failed::Because(reason(error)))?;
        if let Some(answer) = received.message {
            // proto3 leaves out a status of 0.
            return Ok(message::first(&answer, 1).and_then(Value::number).unwrap_or(0));
        }
        // If the server has gone, the next read says so, after what it sent before.
        let _ = connection.write_all(&received.reply);
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
