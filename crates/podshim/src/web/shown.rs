//! Pods as the page gets them: JSON, whose times are milliseconds since 1970.
//!
//! Owns that form, and that no command and no output of a program is in it: every user of the node may connect to a loopback address.
//! Asks no shim.

use control_api::client::ClientError;
use control_api::{EventsResponse, InspectResponse, Past};
use node_state::entry::Entry;
use node_state::past::forget_commands;
use serde_json::{Value, json};

use crate::clock::now_ms;
use crate::events::EventReport;
use crate::past::PastReport;
use crate::pods::PodReport;
use crate::shims::Shim;
use crate::timeline::Timeline;
use crate::timeline::chart::{Lane, Mark};
use crate::why::{of_past, paragraph};
use crate::words::DisplayWord;

/// What a pod is called by the page: the id alone may be that of others, in other namespaces of containerd.
pub(super) fn key(entry: &Entry) -> String {
    format!("{}/{}", entry.namespace, entry.id)
}

/// A pod that a shim serves, for the list. It changes only when something happens to the pod.
pub(super) fn summary(entry: &Entry, pod: InspectResponse, events: EventsResponse) -> Value {
    let (pod, events, lost) = without_commands(pod, events);
    let until = present(&events);
    let chart = chart(&Timeline::of(&pod, events, lost, until));
    summary_of(&key(entry), &pod, chart)
}

/// The same of a pod whose shim gives no answer.
pub(super) fn summary_of_silent(entry: Entry, error: ClientError) -> Value {
    summary_of(&key(&entry), &PodReport::of(Shim { entry, answer: Err(error) }), Value::Null)
}

fn summary_of(key: &str, pod: &PodReport, chart: Value) -> Value {
    let containers = pod.containers.iter().filter(|container| container.role.word() != "sandbox");
    let containers: Vec<_> = containers
        .map(|container| {
            json!({
                "name": container.name, "role": container.role.word(), "state": container.state_word,
                "held_for": container.held_for, "restarts": container.all_restarts(),
            })
        })
        .collect();
    json!({
        "key": key, "title": pod.title(), "name": pod.name, "namespace": pod.pod_namespace, "state": pod.state.words(),
        "error": pod.error, "fault": pod.fault, "containers": containers, "chart": chart,
    })
}

/// All there is to know of a pod that a shim serves.
pub(super) fn story(pod: InspectResponse, events: EventsResponse) -> Value {
    let (pod, events, lost) = without_commands(pod, events);
    let why = paragraph(&pod);
    let until = present(&events);
    story_of(&pod, events, lost, until, &why)
}

/// Now, and later than all that has happened: what has just begun is drawn too.
fn present(events: &[EventReport]) -> i64 {
    events.last().map_or_else(now_ms, |last| now_ms().max(last.wall_ms + 1))
}

/// The same of a pod whose shim gives no answer.
pub(super) fn story_of_silent(entry: Entry, error: ClientError) -> Value {
    let pod = PodReport::of(Shim { entry, answer: Err(error) });
    let why = paragraph(&pod);
    story_of(&pod, Vec::new(), 0, now_ms(), &why)
}

/// The same of a pod that is gone. Its record has no commands.
pub(super) fn story_of_past(past: PastReport) -> Value {
    let why = of_past(&past, now_ms());
    let mut story = story_of(&past.pod, past.events, past.lost, past.ended_at_ms, &why);
    story["ended_ms"] = past.ended_at_ms.into();
    story
}

fn story_of(pod: &PodReport, events: Vec<EventReport>, lost: u64, until_ms: i64, why: &str) -> Value {
    let timeline = Timeline::of(pod, events, lost, until_ms);
    let rows =
        timeline.rows.iter().map(|row| json!({"at": row.wall_ms, "who": row.who, "what": row.sentence}));
    let rows: Vec<_> = rows.collect();
    json!({ "now": now_ms(), "pod": pod, "title": pod.title(), "why": why, "rows": rows, "lost": lost, "chart": chart(&timeline) })
}

/// A pod that is gone, for the list.
pub(super) fn ended(past: &PastReport) -> Value {
    json!({
        "key": format!("{}/{}", past.pod.namespace, past.pod.id), "title": past.pod.title(), "namespace": past.pod.pod_namespace, "state": past.pod.state.words(),
        "ended_ms": past.ended_at_ms, "lived_ms": past.lived_ms(), "why": past.why(), "restarts": past.restarts(),
    })
}

/// What every user of the node may read: as in the records of pods that are gone, without commands and what programs write.
fn without_commands(pod: InspectResponse, events: EventsResponse) -> (PodReport, Vec<EventReport>, u64) {
    let mut past = Past { pod: Some(pod).into(), events: Some(events).into(), ..Default::default() };
    forget_commands(&mut past);
    let events = past.events.unwrap_or_default();
    let reports = events.events.into_iter().map(EventReport::of).collect();
    (PodReport::of_answer(past.pod.unwrap_or_default()), reports, events.lost)
}

/// A chart. The end of a span that goes on is null: the page draws it to its own now.
fn chart(timeline: &Timeline) -> Value {
    let chart = &timeline.chart;
    let wall = |at_ms: u64| i64::try_from(at_ms).unwrap_or_default() + timeline.wall_offset_ms;
    // A life that is over ends with its last event.
    let last = timeline.rows.last().map_or(chart.begin_ms, |row| row.at_ms);
    let goes_on = chart.end_ms > last;
    let mark = |mark: &Mark| json!([wall(mark.at_ms), mark.kind.words(), mark.text]);
    let marks = |marks: &[Mark]| marks.iter().map(mark).collect::<Vec<_>>();
    let lane = |lane: &Lane| {
        let spans = lane.spans.iter().map(|span| {
            let to = (!goes_on || span.to_ms < chart.end_ms).then(|| wall(span.to_ms));
            json!([wall(span.from_ms), to, span.phase.words()])
        });
        let spans: Vec<_> = spans.collect();
        json!({ "name": lane.name, "role": lane.role, "spans": spans, "marks": marks(&lane.marks) })
    };
    let lanes: Vec<_> = chart.lanes.iter().map(lane).collect();
    let end = (!goes_on).then(|| wall(chart.end_ms));
    json!({ "from": wall(chart.begin_ms), "to": end, "lanes": lanes, "marks": marks(&chart.marks) })
}

#[cfg(test)]
mod tests {
    use control_api::container::{Role, State};
    use control_api::event::Kind;
    use control_api::{Container, Event};

    use super::*;

    fn entry() -> Entry {
        Entry { id: "abc".to_owned(), namespace: "k8s.io".to_owned(), ..Entry::default() }
    }

    fn pod() -> InspectResponse {
        let app = Container {
            name: "app".to_owned(),
            role: Role::MAIN.into(),
            state: State::RUNNING.into(),
            gate: "exec:curl -H secret".to_owned(),
            ..Default::default()
        };
        InspectResponse {
            id: "another".to_owned(),
            namespace: "ones".to_owned(),
            pod_name: "web".to_owned(),
            containers: vec![app],
            ..Default::default()
        }
    }

    fn events() -> EventsResponse {
        let event = |sequence: u64, kind: Kind| Event {
            sequence,
            wall_ms: 1_000_000 + i64::try_from(sequence * 100).unwrap(),
            monotonic_ms: sequence * 100,
            kind: kind.into(),
            name: "app".to_owned(),
            id: "1".to_owned(),
            ..Default::default()
        };
        let failed = Event { text: "secret output".to_owned(), ..event(4, Kind::GATE_FAILED) };
        let events = vec![event(1, Kind::CREATED), event(2, Kind::STARTING), event(3, Kind::RUNNING), failed];
        EventsResponse { events, ..Default::default() }
    }

    /// Nothing changes while nothing happens: an idle pod sends nothing to a reader.
    #[test]
    fn what_goes_on_has_no_end_and_a_summary_stays_the_same() {
        let first = summary(&entry(), pod(), events());
        assert_eq!(first["key"], "k8s.io/abc", "the entry's, whatever the shim says");
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert_eq!(first, summary(&entry(), pod(), events()));
        let spans = &first["chart"]["lanes"][0]["spans"];
        assert_eq!(spans[0], json!([1_000_100, 1_000_200, "created"]));
        assert_eq!(spans[2], json!([1_000_300, null, "gate closed"]));
        assert_eq!(first["chart"]["to"], Value::Null);
        let ended = EventsResponse {
            events: [
                events().events,
                vec![Event {
                    code: Some(0),
                    ..Event {
                        sequence: 5,
                        wall_ms: 1_000_500,
                        monotonic_ms: 500,
                        kind: Kind::EXITED.into(),
                        name: "app".to_owned(),
                        ..Default::default()
                    }
                }],
            ]
            .concat(),
            ..Default::default()
        };
        let ended = summary(&entry(), pod(), ended);
        assert_eq!(ended["chart"]["lanes"][0]["spans"][2][1], 1_000_500);
        assert_eq!(ended["chart"]["to"], 1_000_500);
    }

    #[test]
    fn no_command_and_no_output_is_shown() {
        for text in [summary(&entry(), pod(), events()).to_string(), story(pod(), events()).to_string()] {
            assert!(!text.contains("secret"), "{text}");
        }
        assert_eq!(story(pod(), events())["pod"]["containers"][0]["gate"], "exec");
    }
}
