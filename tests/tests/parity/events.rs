//! The events of one shim, received in containerd's place: every envelope, in order of arrival.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use async_trait::async_trait;
use containerd_shim_protos::shim::event::Envelope;
use containerd_shim_protos::shim::events::ForwardRequest;
use containerd_shim_protos::shim_async::{Events, create_events};
use containerd_shim_protos::types::empty::Empty;
use e2e::durations::pace;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};
use ttrpc::asynchronous::{Server, TtrpcContext};

use crate::record::{Names, Record};

struct Collector(mpsc::UnboundedSender<Envelope>);

#[async_trait]
impl Events for Collector {
    async fn forward(&self, _: &TtrpcContext, request: ForwardRequest) -> ttrpc::Result<Empty> {
        if let Some(envelope) = request.envelope.into_option() {
            // An error means that the run has ended and no longer needs the event.
            let _ = self.0.send(envelope);
        }
        Ok(Empty::new())
    }
}

/// The receiving end, and all events so far.
pub struct Received {
    events: mpsc::UnboundedReceiver<Envelope>,
    seen: Vec<Envelope>,
    _server: Server,
}

impl Received {
    /// Serves containerd's event service on a socket.
    pub async fn serve(socket: &Path) -> Result<Self> {
        let (sender, events) = mpsc::unbounded_channel();
        let service = create_events(Arc::new(Collector(sender)));
        let mut server =
            Server::new().bind(&format!("unix://{}", socket.display()))?.register_service(service);
        server.start().await?;
        Ok(Self { events, seen: Vec::new(), _server: server })
    }

    /// Whether an event like this has come, or comes `within` the time (times the machine's [`pace`]): `topic` without
    /// its `/tasks/`, and all `fields`.
    pub async fn has(
        &mut self,
        names: &Names,
        topic: &str,
        fields: &[(&str, &str)],
        within: Duration,
    ) -> bool {
        let deadline = Instant::now() + within * pace();
        let fits = |envelope: &Envelope| {
            let found = names.fields(envelope);
            envelope.topic.ends_with(&format!("/{topic}"))
                && fields.iter().all(|(name, value)| {
                    found.iter().any(|(path, text)| *path == format!("event.{name}") && text == value)
                })
        };
        if self.seen.iter().any(fits) {
            return true;
        }
        loop {
            let Ok(Some(envelope)) = timeout_at(deadline, self.events.recv()).await else { return false };
            self.seen.push(envelope);
            if self.seen.last().is_some_and(fits) {
                return true;
            }
        }
    }

    /// All events so far, one record each.
    pub fn records(&mut self, names: &Names) -> Vec<Record> {
        while let Ok(envelope) = self.events.try_recv() {
            self.seen.push(envelope);
        }
        let record = |envelope: &Envelope| {
            let fields = names.fields(envelope);
            let of = |name: &str| {
                let found = fields.iter().find(|(path, _)| path == name);
                found.map(|(_, text)| format!(" {text}")).unwrap_or_default()
            };
            // An init's exit has its container's id twice.
            let (container, exec) = (of("event.container_id"), of("event.exec_id") + &of("event.id"));
            let exec = if exec == container { String::new() } else { exec };
            Record { step: format!("event {}{container}{exec}", envelope.topic), fields }
        };
        let records: Vec<_> = self.seen.iter().map(record).collect();
        // The kernel may count several OOM events before the killed process is gone, and the Go shim publishes them
        // before or after the exit.
        let (mut reported, records): (Vec<_>, Vec<_>) =
            records.into_iter().partition(|record| record.step.starts_with("event /tasks/oom"));
        reported.dedup_by(|next, one| next.step == one.step);
        records.into_iter().chain(reported).collect()
    }
}
