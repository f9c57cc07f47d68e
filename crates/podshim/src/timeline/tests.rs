//! The timeline of a pod with a sidecar and a main, from its creation to its end.

use control_api::event::{Cause, Kind};
use control_api::{Budget, Container, Event, InspectResponse, StopReason, container};

use super::chart::Span;
use super::*;

/// A short life; the shim started 1,000,000 ms after the beginning of 1970.
pub fn life() -> Timeline {
    Timeline::of(&pod(), events(), 0, 1_060_000)
}

fn events() -> Vec<EventReport> {
    let mut events = Vec::new();
    let mut record = |at: u64, name: &str, kind: Kind, change: &dyn Fn(&mut Event)| {
        let mut event = Event {
            sequence: events.len() as u64 + 1,
            wall_ms: 1_000_000 + i64::try_from(at).expect("small"),
            monotonic_ms: at,
            kind: kind.into(),
            name: name.to_owned(),
            ..Default::default()
        };
        change(&mut event);
        events.push(EventReport::of(event));
    };
    record(100, "app", Kind::CREATED, &|_| {});
    record(200, "app", Kind::HELD, &|event| event.text = "sidecar \"proxy\"".to_owned());
    record(300, "proxy", Kind::CREATED, &|_| {});
    record(400, "proxy", Kind::STARTING, &|_| {});
    record(500, "proxy", Kind::RUNNING, &|event| event.pid = 7);
    record(900, "proxy", Kind::EXITED, &|event| event.code = Some(3));
    record(900, "proxy", Kind::RESTART_DUE, &|event| event.duration_ms = Some(600));
    record(1500, "proxy", Kind::STARTING, &|_| {});
    record(1600, "proxy", Kind::RUNNING, &|event| event.pid = 8);
    record(2000, "proxy", Kind::GATE_OPENED, &|_| {});
    record(2000, "app", Kind::STARTING, &|_| {});
    record(2100, "app", Kind::RUNNING, &|event| event.pid = 9);
    record(5000, "", Kind::STOP_BEGAN, &|event| {
        event.stop_reason = StopReason::REQUESTED.into();
        event.budget = Budget::ENFORCED.into();
        event.duration_ms = Some(10_000);
    });
    for (at, name, code) in [(5000, "app", 0), (6000, "proxy", 143)] {
        record(at, name, Kind::SIGNALLED, &|event| {
            (event.signal, event.cause) = (15, Cause::TURN.into());
        });
        record(at + 1000, name, Kind::EXITED, &|event| event.code = Some(code));
    }
    record(7000, "", Kind::STOP_ENDED, &|_| {});
    events
}

fn pod() -> PodReport {
    let container = |name: &str, role: container::Role, gate: &str| Container {
        name: name.to_owned(),
        role: role.into(),
        gate: gate.to_owned(),
        ..Default::default()
    };
    PodReport::of_answer(InspectResponse {
        pod_name: "web".to_owned(),
        pod_namespace: "prod".to_owned(),
        containers: vec![
            container("pause", container::Role::SANDBOX, ""),
            container("proxy", container::Role::SIDECAR, "tcp::1"),
            container("app", container::Role::MAIN, ""),
        ],
        ..Default::default()
    })
}

fn span(from_ms: u64, to_ms: u64, phase: Phase) -> Span {
    Span { from_ms, to_ms, phase }
}

#[test]
fn a_sidecar_is_drawn_with_its_restart_its_gate_and_its_stop() {
    let life = life();
    assert_eq!(
        life.chart.lanes[0].spans,
        [
            span(300, 400, Phase::Created),
            span(400, 500, Phase::Starting),
            span(500, 900, Phase::GateClosed),
            span(900, 1500, Phase::BackingOff),
            span(1500, 1600, Phase::Starting),
            span(1600, 2000, Phase::GateClosed),
            span(2000, 6000, Phase::Running),
            span(6000, 7000, Phase::Stopping),
        ]
    );
    let budget = chart::Budget { from_ms: 5000, to_ms: 7000, time_ms: 10_000 };
    assert_eq!((life.chart.begin_ms, life.chart.end_ms), (100, 7000));
    assert_eq!(life.chart.budgets, [budget], "the stop ended early");
}

/// N9, R14: after a restart of the pod a gate is closed again, until it opens.
#[test]
fn r14_found_n9_a_gate_is_closed_again_after_a_restart_of_the_pod() {
    let mut events = events();
    for event in &mut events {
        if event.kind == Kind::STOP_BEGAN {
            event.reason = Some(StopReason::RESTART);
        }
    }
    let again = |at: u64, kind: Kind| {
        let monotonic_ms = at;
        EventReport::of(Event {
            kind: kind.into(),
            name: "proxy".to_owned(),
            monotonic_ms,
            ..Default::default()
        })
    };
    events.extend([again(7100, Kind::RUNNING), again(9000, Kind::GATE_OPENED), again(9900, Kind::EXITED)]);
    let life = Timeline::of(&pod(), events, 0, 1_060_000);
    let last: Vec<_> = life.chart.lanes[0].spans.iter().rev().take(2).copied().collect();
    assert_eq!(last, [span(9000, 9900, Phase::Running), span(7100, 9000, Phase::GateClosed)]);
}

/// N9: the stop's budget is drawn as long as the stop was, in a pod that goes on, and in one whose sandbox ended later.
#[test]
fn found_n9_a_budget_is_as_long_as_its_stop() {
    let pod_event = |at: u64, kind: Kind, reason: StopReason| {
        EventReport::of(Event {
            kind: kind.into(),
            monotonic_ms: at,
            stop_reason: reason.into(),
            ..Default::default()
        })
    };
    let band = chart::Budget { from_ms: 5000, to_ms: 7000, time_ms: 10_000 };
    let mut goes_on = events();
    let mut running = pod_event(8000, Kind::RUNNING, StopReason::NOT_STOPPING);
    running.container = Some("app".to_owned());
    goes_on.push(running);
    assert_eq!(Timeline::of(&pod(), goes_on, 0, 1_060_000).chart.budgets, [band]);
    let mut past = events();
    let end = past.pop().expect("the stop's end");
    past.push(pod_event(6900, Kind::STOP_BEGAN, StopReason::SANDBOX_ENDED));
    past.push(end);
    assert_eq!(Timeline::of(&pod(), past, 0, 1_060_000).chart.budgets, [band], "the sandbox ends last");
}

/// A main has no gate: it is not drawn as if its gate were closed.
#[test]
fn a_main_runs_as_soon_as_it_runs() {
    let life = life();
    let phases: Vec<_> = life.chart.lanes[1].spans.iter().map(|span| span.phase).collect();
    assert_eq!(phases, [Phase::Created, Phase::Held, Phase::Starting, Phase::Running, Phase::Stopping]);
}

/// A phase that has not ended is drawn up to now.
#[test]
fn a_pod_that_lives_is_drawn_up_to_now() {
    let mut events = events();
    events.truncate(12);
    let lives = Timeline::of(&pod(), events, 4, 1_060_000);
    assert_eq!((lives.chart.end_ms, lives.lost), (60_000, 4));
    assert_eq!(lives.chart.lanes[1].spans.last(), Some(&span(2100, 60_000, Phase::Running)));
}

#[test]
fn ticks_are_round_and_few() {
    let life = life();
    assert_eq!(life.chart.ticks(8), [0, 1000, 2000, 3000, 4000, 5000, 6000]);
    assert_eq!(life.chart.ticks(3), [0, 5000]);
}

/// A pod without events gives an empty picture, not an error.
#[test]
fn nothing_is_drawn_of_nothing() {
    let nothing = Timeline::of(&pod(), Vec::new(), 0, 5);
    assert!(nothing.chart.lanes.iter().all(|lane| lane.spans.is_empty()));
    assert_eq!(nothing.chart.length_ms(), 1);
}

/// The mark for the end of a program that got its stop signal depends on the real code: a masked code that callers see
/// does not make a failure a success.
#[test]
fn an_end_is_drawn_as_what_it_was() {
    let kind_of = |signals: &[u32], code: u32| {
        let mut events = Vec::new();
        let mut record = |kind: Kind, change: &dyn Fn(&mut Event)| {
            let mut event = Event { kind: kind.into(), name: "proxy".to_owned(), ..Default::default() };
            change(&mut event);
            events.push(EventReport::of(event));
        };
        record(Kind::RUNNING, &|_| {});
        for signal in signals {
            record(Kind::SIGNALLED, &|event| (event.signal, event.cause) = (*signal, Cause::TURN.into()));
        }
        record(Kind::EXITED, &|event| event.code = Some(code));
        record(Kind::STOPPED, &|event| (event.code, event.shown_code) = (Some(code), Some(0)));
        let timeline = Timeline::of(&pod(), events, 0, 1_000_000);
        timeline.chart.lanes[0].marks.last().expect("a mark").kind
    };
    assert_eq!(kind_of(&[15], 0), MarkKind::Done);
    assert_eq!(kind_of(&[15], 143), MarkKind::BySignal);
    assert_eq!(kind_of(&[12], 140), MarkKind::BySignal);
    assert_eq!(kind_of(&[15], 3), MarkKind::Failure, "masked");
    assert_eq!(kind_of(&[15, 9], 137), MarkKind::Failure);
    assert_eq!(kind_of(&[9], 137), MarkKind::Failure);
    assert_eq!(kind_of(&[], 143), MarkKind::Failure, "no signal was sent");
}

/// The 64 characters of an id say nothing to people.
#[test]
fn names_are_shown_and_no_ids() {
    let (pod_id, other) = ("a".repeat(64), "0123456789abcdef".repeat(4));
    let event = |name: &str| {
        EventReport::of(Event { kind: Kind::CREATED.into(), name: name.to_owned(), ..Default::default() })
    };
    let pod = PodReport { id: pod_id.clone(), ..pod() };
    let timeline = Timeline::of(&pod, vec![event(&pod_id), event(&other), event("proxy")], 0, 5);
    let who: Vec<_> = timeline.rows.iter().map(|row| row.who.as_str()).collect();
    assert_eq!(who, ["(sandbox)", "0123456789abc", "proxy"]);
}
