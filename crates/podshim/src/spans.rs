//! A pod's life as spans of OpenTelemetry: one trace for each pod, a span for each hold, start, run, gate, hook and stop.
//!
//! Owns which events begin and end a span, and their form in OTLP's JSON. The same events give the same ids, so a pod that is watched
//! twice is no second trace. Sends nothing.

use std::collections::BTreeMap;

use control_api::event::Kind;
use node_state::entry::Entry;
use serde_json::{Value, json};

use crate::events::EventReport;

/// The id of the pod's own span. Those of others are made of the number of the event that began them.
const POD_SPAN: u64 = 1;
/// OTLP's code for a status that is an error.
const ERROR: u8 = 2;

/// The spans of one pod that have not ended.
#[derive(Debug)]
pub struct Spans {
    trace_id: String,
    resource: Value,
    open: BTreeMap<SpanKey, OpenSpan>,
    /// The times of the pod's first and last event.
    pod: Option<(i64, i64)>,
}

/// What a span is of. A container is in one phase at a time.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SpanKey {
    Phase(String),
    Gate(String),
    Hook(String),
    Stop,
}

/// A span that has begun.
#[derive(Debug)]
struct OpenSpan {
    name: String,
    since_ms: i64,
    id: u64,
    attributes: Vec<Value>,
}

impl Spans {
    /// No spans yet, of the pod with this entry.
    pub fn of(pod: &Entry) -> Self {
        let resource = [
            ("service.name", "podshim"),
            ("k8s.namespace.name", &pod.pod_namespace),
            ("k8s.pod.name", &pod.pod_name),
            ("podshim.pod.id", &pod.id),
        ];
        let known = resource.iter().filter(|(_, value)| !value.is_empty());
        let attributes: Vec<_> = known.map(|(key, value)| attribute(key, value)).collect();
        Self {
            trace_id: trace_id(&pod.id),
            resource: json!({ "attributes": attributes }),
            open: BTreeMap::new(),
            pod: None,
        }
    }

    /// The spans that end with an event.
    pub fn next(&mut self, event: &EventReport) -> Vec<Value> {
        let at = event.wall_ms;
        self.pod = Some((self.pod.map_or(at, |(first, _)| first), at));
        let id = event.id.clone().unwrap_or_default();
        let (phase, gate, hook) = (SpanKey::Phase(id.clone()), SpanKey::Gate(id.clone()), SpanKey::Hook(id));
        let failed = event.code.filter(|code| *code != 0).map(|code| format!("exit code {code}"));
        let mut ended = Vec::new();
        match event.kind {
            Kind::HELD => ended.extend(self.change(phase, event, "held")),
            Kind::STARTING => ended.extend(self.change(phase, event, "start")),
            Kind::RUNNING => {
                ended.extend(self.change(phase, event, "run"));
                self.begin(gate, event, "gate");
            }
            Kind::GATE_OPENED => ended.extend(self.end(&gate, at, None)),
            Kind::GATE_FAILED => ended.extend(self.end(&gate, at, Some(event.sentence()))),
            Kind::GATE_TIMED_OUT | Kind::START_FAILED => {
                ended.extend(self.end(&phase, at, Some(event.sentence())));
            }
            Kind::EXITED | Kind::STOPPED => {
                // A gate that never opened says nothing: the container may have none.
                self.open.remove(&gate);
                ended.extend(self.end(&phase, at, failed));
            }
            Kind::RESTART_DUE => ended.extend(self.change(phase, event, "back-off")),
            Kind::HOOK_STARTED => {
                let name = event.text.clone().unwrap_or_default();
                self.begin(hook, event, &format!("hook {name}"));
            }
            Kind::HOOK_ENDED => ended.extend(self.end(&hook, at, event.failure.clone())),
            // Again when its reason or its time changes: one span.
            Kind::STOP_BEGAN if !self.open.contains_key(&SpanKey::Stop) => {
                self.begin(SpanKey::Stop, event, "stop")
            }
            Kind::BUDGET_SPENT => ended.extend(self.end(&SpanKey::Stop, at, Some(event.sentence()))),
            Kind::STOP_ENDED => ended.extend(self.end(&SpanKey::Stop, at, None)),
            _ => {}
        }
        ended
    }

    /// The pod has ended: the spans that are left, and the pod's own.
    pub fn finish(&mut self) -> Vec<Value> {
        let Some((first, last)) = self.pod else { return Vec::new() };
        let left: Vec<_> = self.open.keys().cloned().collect();
        let mut ended: Vec<_> = left.iter().filter_map(|key| self.end(key, last, None)).collect();
        let pod = OpenSpan { name: "pod".to_owned(), since_ms: first, id: POD_SPAN, attributes: Vec::new() };
        ended.push(self.span(pod, last, None));
        ended
    }

    /// Spans as the body of a request to `/v1/traces`.
    pub fn request(&self, spans: &[Value]) -> Value {
        let scope = json!({"name": "podshim", "version": env!("CARGO_PKG_VERSION")});
        let spans = json!({"scope": scope, "spans": spans});
        json!({"resourceSpans": [{"resource": self.resource, "scopeSpans": [spans]}]})
    }

    fn change(&mut self, key: SpanKey, event: &EventReport, name: &str) -> Option<Value> {
        let ended = self.end(&key, event.wall_ms, None);
        self.begin(key, event, name);
        ended
    }

    fn begin(&mut self, key: SpanKey, event: &EventReport, name: &str) {
        let container = event.container.as_deref().unwrap_or_default();
        let mut attributes = Vec::new();
        if !container.is_empty() {
            attributes.push(attribute("k8s.container.name", container));
        }
        if let (Kind::HELD, Some(text)) = (event.kind, &event.text) {
            attributes.push(attribute("podshim.waits_for", text));
        }
        if let Some(reason) = event.reason {
            attributes.push(attribute("podshim.stop.reason", reason.word()));
        }
        // Two spans may begin with one event: a program's run, and the wait for its gate.
        let id = event.sequence * 4 + if matches!(key, SpanKey::Phase(_)) { 0 } else { 1 };
        let name = if container.is_empty() { name.to_owned() } else { format!("{container}: {name}") };
        self.open.insert(key, OpenSpan { name, since_ms: event.wall_ms, id, attributes });
    }

    fn end(&mut self, key: &SpanKey, at: i64, failure: Option<String>) -> Option<Value> {
        let open = self.open.remove(key)?;
        Some(self.span(open, at, failure))
    }

    fn span(&self, open: OpenSpan, until_ms: i64, failure: Option<String>) -> Value {
        let nanoseconds = |milliseconds: i64| format!("{milliseconds}000000");
        let mut span = json!({
            "traceId": self.trace_id,
            "spanId": format!("{:016x}", open.id),
            "name": open.name,
            "kind": 1,
            "startTimeUnixNano": nanoseconds(open.since_ms),
            "endTimeUnixNano": nanoseconds(until_ms),
            "attributes": open.attributes,
        });
        if open.id != POD_SPAN {
            span["parentSpanId"] = format!("{POD_SPAN:016x}").into();
        }
        if let Some(failure) = failure {
            span["status"] = json!({"code": ERROR, "message": failure});
        }
        span
    }
}

fn attribute(key: &str, value: &str) -> Value {
    json!({"key": key, "value": {"stringValue": value}})
}

/// The beginning of a sandbox's id, which is random; for an id that a person chose, its FNV-1a hash.
fn trace_id(pod: &str) -> String {
    let is_random = pod.len() == 64 && pod.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    match pod.get(..32) {
        Some(beginning) if is_random => beginning.to_owned(),
        _ => {
            let step = |hash: u128, byte: u8| {
                (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b)
            };
            format!("{:032x}", pod.bytes().fold(0x6c62_272e_07bb_0142_62b8_2175_6295_c58d, step))
        }
    }
}

#[cfg(test)]
mod tests {
    use control_api::{Event, StopReason};

    use super::*;

    fn event(sequence: u64, kind: Kind, name: &str) -> Event {
        let at = i64::try_from(sequence).unwrap() * 1000;
        let (name, id) =
            (name.to_owned(), if name.is_empty() { String::new() } else { format!("id-{name}") });
        Event { sequence, kind: kind.into(), name, id, wall_ms: at, ..Default::default() }
    }

    /// Name, beginning and end in seconds, and the error.
    fn shown(spans: &[Value]) -> Vec<String> {
        let seconds =
            |span: &Value, key: &str| span[key].as_str().unwrap().trim_end_matches("000000000").to_owned();
        let one = |span: &Value| {
            let (from, to) = (seconds(span, "startTimeUnixNano"), seconds(span, "endTimeUnixNano"));
            let error = span["status"]["message"].as_str().map(|text| format!(" !{text}"));
            format!("{} {from}-{to}{}", span["name"].as_str().unwrap(), error.unwrap_or_default())
        };
        spans.iter().map(one).collect()
    }

    #[test]
    fn a_life_is_a_trace() {
        let pod = Entry { id: "ab".repeat(32), pod_name: "cart".to_owned(), ..Entry::default() };
        let mut spans = Spans::of(&pod);
        let events = [
            event(1, Kind::CREATED, "proxy"),
            event(2, Kind::STARTING, "proxy"),
            event(3, Kind::RUNNING, "proxy"),
            Event { text: "sidecar \"proxy\"".to_owned(), ..event(4, Kind::HELD, "app") },
            event(5, Kind::GATE_OPENED, "proxy"),
            event(6, Kind::STARTING, "app"),
            event(7, Kind::RUNNING, "app"),
            Event { stop_reason: StopReason::CALLER.into(), ..event(8, Kind::STOP_BEGAN, "") },
            event(9, Kind::STOP_BEGAN, ""),
            Event { code: Some(143), ..event(10, Kind::EXITED, "app") },
            Event { code: Some(143), ..event(11, Kind::STOPPED, "app") },
            Event { code: Some(0), ..event(12, Kind::EXITED, "proxy") },
        ];
        let mut ended: Vec<_> =
            events.into_iter().flat_map(|event| spans.next(&EventReport::of(event))).collect();
        ended.extend(spans.finish());
        assert_eq!(
            shown(&ended),
            [
                "proxy: start 2-3",
                "proxy: gate 3-5",
                "app: held 4-6",
                "app: start 6-7",
                "app: run 7-10 !exit code 143",
                "proxy: run 3-12",
                "stop 8-12",
                "pod 1-12",
            ]
        );
        let ids: std::collections::BTreeSet<_> = ended.iter().map(|span| span["spanId"].as_str()).collect();
        assert_eq!(ids.len(), ended.len(), "each span has its own id");
        assert!(ended.iter().all(|span| span["traceId"] == "ab".repeat(16)));
        assert_eq!(ended.last().unwrap().get("parentSpanId"), None);
        assert!(ended[..7].iter().all(|span| span["parentSpanId"] == "0000000000000001"));
    }

    #[test]
    fn what_fails_is_an_error_and_an_id_that_a_person_chose_has_a_trace_too() {
        let mut spans = Spans::of(&Entry { id: "redis".to_owned(), ..Entry::default() });
        let events = [
            event(1, Kind::HELD, "app"),
            event(2, Kind::GATE_TIMED_OUT, "app"),
            Event { text: "pre-stop".to_owned(), ..event(3, Kind::HOOK_STARTED, "app") },
            Event { failure: "exit code 1".to_owned(), ..event(4, Kind::HOOK_ENDED, "app") },
            event(5, Kind::STOP_BEGAN, ""),
            event(6, Kind::BUDGET_SPENT, ""),
        ];
        let ended: Vec<_> =
            events.into_iter().flat_map(|event| spans.next(&EventReport::of(event))).collect();
        assert_eq!(
            shown(&ended),
            [
                "app: held 1-2 !held for the whole gate-timeout: it does not start",
                "app: hook pre-stop 3-4 !exit code 1",
                "stop 5-6 !the budget is spent: what is left is killed",
            ]
        );
        let trace = ended[0]["traceId"].as_str().unwrap();
        assert!(trace.len() == 32 && trace != "0".repeat(32), "{trace}");
        assert_eq!(Spans::of(&Entry::default()).finish(), [Value::Null; 0]);
    }
}
