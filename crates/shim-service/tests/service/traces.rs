//! Requests that belong to a trace: the log has the trace's id, of other requests nothing.

use std::fmt::{Debug, Write};
use std::sync::{Arc, Mutex};

use containerd_shim_protos::shim::shim::KillRequest;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::support::{context, with_pod};

const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// The log lines with a trace's id: their fields.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

#[derive(Default)]
struct Fields(String);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() != "took_ms" {
            let _ = write!(self.0, "{}={value:?} ", field.name());
        }
    }
}

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("shim_service::trace")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut fields = Fields::default();
        event.record(&mut fields);
        self.0.lock().unwrap().push(fields.0);
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[test]
fn a_request_of_a_trace_has_a_line_with_its_id() {
    let lines = Lines::default();
    let _subscriber = tracing::subscriber::set_default(lines.clone());
    with_pod(async |pod| {
        pod.run("c", "exec sleep 60", &[]).await;
        assert_eq!(lines.0.lock().unwrap().as_slice(), [""; 0], "requests without a trace");
        let mut traced = context();
        traced.add("traceparent".to_owned(), format!("00-{TRACE}-00f067aa0ba902b7-01"));
        let kill = |id: &str| KillRequest { id: id.to_owned(), signal: 9, ..Default::default() };
        pod.client.kill(traced.clone(), &kill("c")).await.unwrap();
        pod.client.kill(traced, &kill("none")).await.unwrap_err();
        let lines = lines.0.lock().unwrap();
        let [done, failed] = lines.as_slice() else { panic!("{lines:?}") };
        for part in [TRACE, "container=\"c\"", "request=\"kill\""] {
            assert!(done.contains(part), "{done}");
        }
        assert!(failed.contains(TRACE) && failed.contains("error=\"container none not found\""), "{failed}");
    });
}
