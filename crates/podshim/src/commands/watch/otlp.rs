//! Sends a pod's spans to an OpenTelemetry collector: OTLP over plain HTTP, as JSON.
//!
//! Owns the request, and the spans that the collector has not taken yet. The collector is on this node (loopback): it has the
//! credentials and the TLS of what is behind it.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use node_state::entry::Entry;
use serde_json::Value;

use crate::events::EventReport;
use crate::spans::Spans;

/// How long the collector may take to connect, to read and to answer. The events wait in the shim meanwhile.
const LIMIT: Duration = Duration::from_secs(2);
/// How much of its answer is read.
const ANSWER_BYTES: u64 = 4096;
/// How many spans wait for a collector that is away; the oldest are dropped.
const WAITING: usize = 2000;

/// The spans of one pod on their way.
pub(super) struct Exporter {
    collector: SocketAddr,
    spans: Spans,
    waiting: Vec<Value>,
    last: Delivery,
}

/// How the last attempt ended: a collector that is away is reported once.
#[derive(PartialEq, Eq)]
enum Delivery {
    Taken,
    Failed,
}

impl Exporter {
    pub(super) fn new(collector: SocketAddr, pod: &Entry) -> Self {
        Self { collector, spans: Spans::of(pod), waiting: Vec::new(), last: Delivery::Taken }
    }

    pub(super) fn add(&mut self, event: &EventReport) {
        self.waiting.extend(self.spans.next(event));
        let surplus = self.waiting.len().saturating_sub(WAITING);
        self.waiting.drain(..surplus);
    }

    /// Sends what has ended. What the collector does not take is tried again with the next events.
    pub(super) fn send(&mut self) {
        match self.attempt() {
            Ok(()) => self.last = Delivery::Taken,
            Err(error) if self.last == Delivery::Taken => {
                eprintln!("podshim: the spans wait: {}: {error}", self.collector);
                self.last = Delivery::Failed;
            }
            Err(_) => {}
        }
    }

    /// The pod has ended: sends what is left, and the span of the pod itself.
    ///
    /// # Errors
    /// The collector did not take them: they are lost.
    pub(super) fn finish(mut self) -> io::Result<()> {
        let rest = self.spans.finish();
        self.waiting.extend(rest);
        self.attempt()
    }

    fn attempt(&mut self) -> io::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let body = self.spans.request(&self.waiting).to_string();
        let mut stream = TcpStream::connect_timeout(&self.collector, LIMIT)?;
        stream.set_read_timeout(Some(LIMIT))?;
        stream.set_write_timeout(Some(LIMIT))?;
        let (host, length) = (self.collector, body.len());
        write!(
            stream,
            "POST /v1/traces HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )?;
        let mut answer = Vec::new();
        stream.take(ANSWER_BYTES).read_to_end(&mut answer)?;
        let answer = String::from_utf8_lossy(&answer);
        let status = answer.lines().next().unwrap_or_default();
        match status.split(' ').nth(1) {
            Some(code) if code.len() == 3 && code.starts_with('2') => {
                self.waiting.clear();
                Ok(())
            }
            _ => Err(io::Error::other(format!("the collector answers {status:?}"))),
        }
    }
}
