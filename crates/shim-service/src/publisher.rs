//! The pod's events on their way to containerd.
//!
//! Owns one ordered queue and the connection that it empties into (CONTRACT §6). An event never overtakes another: the first
//! one is retried until containerd has it, and the others wait. Publishing may never block or fail: callers that must know use
//! Wait and State. Knows nothing of what the events mean.

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use containerd_shim_protos::shim::event::Envelope;
use containerd_shim_protos::shim::events::ForwardRequest;
use containerd_shim_protos::shim_async::{Client, EventsClient};
use protobuf::Message;
use protobuf::well_known_types::any::Any;
use tokio::net::UnixStream;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use ttrpc::asynchronous::transport::Socket;
use ttrpc::context;
use ttrpc::proto::Code;

use crate::clock::system_time;

/// Enough for a long absence of containerd in a busy pod; about 200 kB when full.
const CAPACITY: usize = 1024;
/// The protobuf package of every event a shim publishes.
const EVENTS_PACKAGE: &str = "containerd.events";
/// The timeout that containerd's own shim gives a call.
const CALL_LIMIT: Duration = Duration::from_secs(5);
/// The pauses between attempts. After an upgrade containerd is back within seconds; while it stays away, attempts must be few.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// Older events are dropped: no caller waits for them any more, and where containerd was removed for good the shim must
/// not wake up for ever.
const MAX_AGE: Duration = Duration::from_secs(300);

/// Publishes the events of one pod, in order.
///
/// Delivery is at least once: an event whose answer was lost with the connection is sent again. It is
/// dropped, counted and logged if the queue is full, if containerd refuses it, or after five minutes without
/// containerd. Idle, the publisher has no timer and never wakes up.
#[derive(Debug)]
pub struct Publisher {
    namespace: String,
    queue: mpsc::Sender<Queued>,
    accepted: AtomicU64,
    dropped: Arc<AtomicU64>,
    settled: watch::Receiver<u64>,
}

/// An event in the queue.
#[derive(Debug)]
struct Queued {
    request: ForwardRequest,
    since: Instant,
}

impl Publisher {
    /// A publisher to containerd's ttrpc socket at `address` (a path, with or without `unix://`), for events of
    /// `namespace`. containerd need not run. Must be called on the runtime that is to deliver.
    pub fn new(address: &str, namespace: impl Into<String>) -> Self {
        let (queue, events) = mpsc::channel(CAPACITY);
        let (settle, settled) = watch::channel(0);
        let path = address.strip_prefix("unix://").unwrap_or(address);
        let dropped = Arc::new(AtomicU64::new(0));
        let connection = Connection { path: path.into(), client: None };
        tokio::spawn(deliver_all(events, settle, connection, dropped.clone()));
        Self { namespace: namespace.into(), queue, accepted: AtomicU64::new(0), dropped, settled }
    }

    /// Queues one of containerd's task events behind all others; its time is now.
    pub fn publish<E: Message>(&self, topic: &'static str, event: &E) {
        let value = match event.write_to_bytes() {
            Ok(value) => value,
            Err(error) => return self.drop_event(topic, &error),
        };
        // containerd's typeurl wants the bare name, without a host. `NAME`, not the message's descriptor: that would link
        // protobuf's reflection, a tenth of the binary.
        let type_url = format!("{EVENTS_PACKAGE}.{}", E::NAME);
        let envelope = Envelope {
            timestamp: Some(system_time().into()).into(),
            namespace: self.namespace.clone(),
            topic: topic.to_owned(),
            event: Some(Any { type_url, value, ..Any::default() }).into(),
            ..Envelope::default()
        };
        let request = ForwardRequest { envelope: Some(envelope).into(), ..ForwardRequest::default() };
        // Drop the newest, not the oldest: a reader may miss the last events, but never sees an exit without its start.
        match self.queue.try_send(Queued { request, since: Instant::now() }) {
            Ok(()) => {
                self.accepted.fetch_add(1, Ordering::Relaxed);
            }
            Err(error) => self.drop_event(topic, &error),
        }
    }

    /// Waits until containerd has every event queued so far, `limit` at most.
    ///
    /// Returns how many are still undelivered.
    pub async fn flush(&self, limit: Duration) -> u64 {
        let accepted = self.accepted.load(Ordering::Relaxed);
        let mut settled = self.settled.clone();
        let everything = settled.wait_for(|settled| *settled >= accepted);
        // A timeout and a delivering task that is gone mean the same to the caller: the rest is lost.
        let _ = tokio::time::timeout(limit, everything).await;
        accepted.saturating_sub(*self.settled.borrow())
    }

    /// How many events were dropped so far.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    fn drop_event(&self, topic: &str, reason: &dyn std::fmt::Display) {
        let dropped = self.dropped.fetch_add(1, Ordering::Relaxed) + 1;
        // A full queue drops many: a line for each power of two does not flood the log.
        if dropped.is_power_of_two() {
            tracing::warn!(topic, dropped, %reason, "event dropped");
        }
    }
}

/// Empties the queue until the publisher is gone.
async fn deliver_all(
    mut events: mpsc::Receiver<Queued>,
    settle: watch::Sender<u64>,
    mut connection: Connection,
    dropped: Arc<AtomicU64>,
) {
    while let Some(event) = events.recv().await {
        if connection.deliver(&event).await == Delivery::Dropped {
            dropped.fetch_add(1, Ordering::Relaxed);
        }
        settle.send_modify(|settled| *settled += 1);
    }
}

/// The connection to containerd, which may go away and come back.
struct Connection {
    path: PathBuf,
    client: Option<EventsClient>,
}

/// What has become of an event.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Delivery {
    Done,
    Dropped,
}

/// Why one attempt failed.
enum Failure {
    /// containerd is away or slow: the event may arrive later.
    Unreachable(String),
    /// containerd has read the event and refused it: it would refuse it again.
    Refused(String),
}

impl Connection {
    /// Tries until containerd has the event, has refused it, or it is too old.
    async fn deliver(&mut self, event: &Queued) -> Delivery {
        let topic = &event.request.envelope.topic;
        let mut pause = FIRST_PAUSE;
        loop {
            match self.attempt(&event.request).await {
                Ok(()) => return Delivery::Done,
                Err(Failure::Refused(reason)) => {
                    tracing::warn!(topic, reason, "containerd refused an event");
                    return Delivery::Dropped;
                }
                Err(Failure::Unreachable(reason)) if event.since.elapsed() >= MAX_AGE => {
                    tracing::warn!(topic, reason, "event dropped: containerd could not be reached");
                    return Delivery::Dropped;
                }
                Err(Failure::Unreachable(reason)) => {
                    tracing::debug!(topic, reason, "event not delivered yet");
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    async fn attempt(&mut self, request: &ForwardRequest) -> Result<(), Failure> {
        let client = match &self.client {
            Some(client) => client,
            None => self.client.insert(self.connect().await?),
        };
        match client.forward(context::with_duration(CALL_LIMIT), request).await {
            Ok(_) => Ok(()),
            Err(ttrpc::Error::RpcStatus(status)) if is_final(status.code()) => {
                Err(Failure::Refused(status.message))
            }
            Err(error) => {
                // The connection may be in any state; the next attempt gets a new one.
                self.client = None;
                Err(Failure::Unreachable(error.to_string()))
            }
        }
    }

    async fn connect(&self) -> Result<EventsClient, Failure> {
        // Not `Client::connect`: it blocks the thread while the backlog of a stopped containerd is full.
        let stream = UnixStream::connect(&self.path)
            .await
            .map_err(|error| Failure::Unreachable(format!("{}: {error}", self.path.display())))?;
        Ok(EventsClient::new(Client::new(Socket::new(stream))))
    }
}

/// Whether a status is containerd's answer to the event itself, not a failure on the way to it.
fn is_final(code: Code) -> bool {
    !matches!(code, Code::UNAVAILABLE | Code::DEADLINE_EXCEEDED | Code::CANCELLED | Code::ABORTED)
}
