use control_api::Container;
use control_api::container::Role;

use super::*;
use crate::report::STALE_MS;

const BEGAN_MS: i64 = 1_700_000_000_000;

fn container(name: &str, role: Role, state: State) -> Container {
    let (id, name) = (format!("id-of-{name}"), name.to_owned());
    Container { id, name, role: role.into(), state: state.into(), ..Default::default() }
}

fn pod(containers: Vec<Container>) -> InspectResponse {
    InspectResponse {
        id: "sandbox".to_owned(),
        pod_uid: "u-1".to_owned(),
        pod_name: "web".to_owned(),
        pod_namespace: "prod".to_owned(),
        containers,
        ..Default::default()
    }
}

fn running() -> InspectResponse {
    pod(vec![container("proxy", Role::SIDECAR, State::RUNNING), container("app", Role::MAIN, State::RUNNING)])
}

fn event(kind: Kind, name: &str) -> Event {
    let id = if name.is_empty() { String::new() } else { format!("id-of-{name}") };
    Event { kind: kind.into(), name: name.to_owned(), id, wall_ms: BEGAN_MS, ..Default::default() }
}

fn now(seconds: u64) -> Now {
    Now {
        run: Duration::from_secs(10_000 + seconds),
        wall_ms: BEGAN_MS + i64::try_from(seconds).unwrap() * 1000,
    }
}

/// What a story reports of these events, each with its number: type, reason and note.
fn reported(events: Vec<Event>) -> Vec<(&'static str, &'static str, String)> {
    let numbered = events.into_iter().zip(1..).map(|(event, sequence)| Event { sequence, ..event });
    let events: Vec<Event> = numbered.collect();
    let seen = running();
    shown(Story::of(&seen).see(&seen, &events, now(0)))
}

fn shown(changes: Vec<Change>) -> Vec<(&'static str, &'static str, String)> {
    let report = |change| match change {
        Change::Report(report) => Some((report.severity.word(), report.topic.reason.word(), report.note)),
        Change::Withdraw(_) | Change::Dropped => None,
    };
    changes.into_iter().filter_map(report).collect()
}

#[test]
fn a_held_main_is_reported_with_what_it_waits_for() {
    let mut seen = running();
    seen.containers[1] = Container {
        held_for: "sidecar \"proxy\": connection refused".to_owned(),
        gate_wait_ms: Some(0),
        ..container("app", Role::MAIN, State::HELD)
    };
    let mut story = Story::of(&seen);
    assert_eq!(story.see(&seen, &[], now(0)), []);
    assert_eq!(story.next_due(), Some(now(10).run));
    assert_eq!((story.take_due(now(9)), story.take_due(now(10))), (None, Some(Question::Inspect)));
    assert_eq!(story.next_due(), None, "it is asked once");
    seen.containers[1].gate_wait_ms = Some(10_000);
    let held = shown(story.see(&seen, &[], now(10)));
    let note = "\"app\" is held for 10s, waiting for sidecar \"proxy\": connection refused".to_owned();
    assert_eq!(held, [("Normal", "Held", note)]);
    let over = story.see(&running(), &[], now(12));
    assert!(matches!(&over[..], [Change::Withdraw(Topic { reason: Reason::Held, .. })]), "{over:?}");
}

#[test]
fn gates_switches_and_kills_have_their_words() {
    let failed = Event { text: "tcp:15021 refused".to_owned(), ..event(Kind::GATE_FAILED, "proxy") };
    let kill =
        |signal: u32, cause: Cause| Event { signal, cause: cause.into(), ..event(Kind::SIGNALLED, "app") };
    let events = vec![
        failed,
        event(Kind::GATE_TIMED_OUT, "app"),
        event(Kind::SWITCHED, "proxy"),
        kill(15, Cause::TURN),
        kill(9, Cause::BY_CALLER),
        kill(9, Cause::GRACE),
        event(Kind::BUDGET_SPENT, ""),
    ];
    let expected = [
        ("Warning", "GateFailed", "the gate of \"proxy\" failed: tcp:15021 refused"),
        ("Warning", "GateTimedOut", "\"app\" was held for the whole gate-timeout: it does not start"),
        ("Normal", "Switched", "standby \"proxy\" has taken over"),
        ("Warning", "ForcedKill", "podshim killed \"app\": its own time is over"),
        ("Warning", "BudgetSpent", "the stop's time is over: podshim kills what is left"),
    ];
    assert_eq!(reported(events), expected.map(|(kind, reason, note)| (kind, reason, note.to_owned())));
}

#[test]
fn a_stop_is_reported_once_for_each_cause() {
    let began = |cause: StopReason, duration_ms| Event {
        stop_reason: cause.into(),
        duration_ms,
        ..event(Kind::STOP_BEGAN, "")
    };
    let restart = Event { text: "\"app\" exited with 3".to_owned(), ..event(Kind::POD_RESTART, "") };
    let events = vec![
        restart,
        began(StopReason::RESTART, Some(5000)),
        event(Kind::STOP_ENDED, ""),
        began(StopReason::CALLER, None),
        began(StopReason::CALLER, None),
        began(StopReason::FATAL, Some(30_000)),
        event(Kind::STOP_ENDED, ""),
        began(StopReason::INIT_FAILED, Some(30_000)),
        began(StopReason::SIDECAR_FAILED, Some(30_000)),
    ];
    let expected = [
        ("Warning", "PodRestarted", "the pod restarts in place: \"app\" exited with 3"),
        ("Normal", "StopBegan", "the stop begins (caller), its caller counts the time"),
        ("Warning", "Fatal", "the stop begins (fatal), within 30s"),
        ("Warning", "InitFailed", "the stop begins (init-failed), within 30s"),
        ("Warning", "StopBegan", "the stop begins (sidecar-failed), within 30s"),
    ];
    assert_eq!(reported(events), expected.map(|(kind, reason, note)| (kind, reason, note.to_owned())));
}

/// A stop that begins when its time is over, as after the last call of a caller: no caller counts anything.
#[test]
fn a_stop_without_time_has_no_caller_that_counts() {
    let began = |budget: Budget| {
        let stop_reason = StopReason::CALLER.into();
        Event { stop_reason, budget: budget.into(), ..event(Kind::STOP_BEGAN, "") }
    };
    let note = |budget| reported(vec![began(budget)]).pop().unwrap().2;
    assert_eq!(note(Budget::SPENT), "the stop begins (caller), its time is over already");
    assert_eq!(note(Budget::LAST_CALL), "the stop begins (caller), it is the last call");
    assert_eq!(note(Budget::CALLERS), "the stop begins (caller), its caller counts the time");
}

#[test]
fn a_restart_in_place_has_its_code() {
    let events = vec![
        Event { code: Some(7), ..event(Kind::EXITED, "proxy") },
        event(Kind::RESTART_DUE, "proxy"),
        event(Kind::STARTING, "proxy"),
        event(Kind::RUNNING, "proxy"),
    ];
    let note = "\"proxy\" exited with 7, and podshim started it again in place".to_owned();
    assert_eq!(reported(events), [("Warning", "Restarted", note)]);
}

#[test]
fn a_crash_loop_is_reported_once() {
    let mut seen = running();
    seen.containers[0] = Container {
        restarts: 5,
        restarts_total: Some(12),
        real_exit_code: Some(3),
        restart_in_ms: Some(15_900),
        ..container("proxy", Role::SIDECAR, State::BACKING_OFF)
    };
    let mut story = Story::of(&seen);
    let note =
        "podshim started \"proxy\" again 5 times in place, and it ended each time, last with 3; next in 15s";
    assert_eq!(shown(story.see(&seen, &[], now(0))), [("Warning", "CrashLoop", note.to_owned())]);
    (seen.containers[0].restarts, seen.containers[0].restarts_total) = (6, Some(13));
    assert_eq!(story.see(&seen, &[], now(30)), []);
    let over = story.see(&running(), &[], now(700));
    assert!(matches!(&over[..], [Change::Withdraw(Topic { reason: Reason::CrashLoop, .. })]), "{over:?}");
}

#[test]
fn a_fault_is_asked_for_after_a_minute() {
    let mut seen = running();
    seen.containers[0] = container("prxoy", Role::SIDECAR, State::NOT_CREATED);
    let mut story = Story::of(&seen);
    assert_eq!(story.see(&seen, &[event(Kind::CREATED, "app")], now(0)), []);
    assert_eq!(story.next_due(), Some(now(61).run));
    seen.fault = "the pod does not start: sidecar \"prxoy\" was never created".to_owned();
    let fault = shown(story.see(&seen, &[], now(61)));
    assert_eq!(fault, [("Warning", "PlanFault", seen.fault.clone())]);
    assert_eq!((story.see(&seen, &[], now(62)), story.next_due()), (vec![], None));
}

/// The agent is restarted: what an agent before it has reported long ago it does not, what is fresh it names alike.
#[test]
fn an_old_event_is_not_reported_again() {
    let seen = running();
    let events = [Event { sequence: 4, ..event(Kind::GATE_FAILED, "proxy") }];
    let old = now(u64::try_from(STALE_MS / 1000).unwrap() + 1);
    assert_eq!(Story::of(&seen).see(&seen, &events, old), []);
    let mut story = Story::of(&seen);
    story.see(&seen, &[], now(0));
    assert_eq!(story.see(&seen, &events, old), [Change::Dropped], "what came late is counted");
    let first = Story::of(&seen).see(&seen, &events, now(1));
    assert_eq!((first.len(), &first), (1, &Story::of(&seen).see(&seen, &events, now(60))));
}

#[test]
fn a_pod_without_a_plan_has_no_story() {
    let seen = pod(vec![container("app", Role::PASSTHROUGH, State::RUNNING)]);
    let began = Event { stop_reason: StopReason::CALLER.into(), ..event(Kind::STOP_BEGAN, "") };
    assert_eq!(Story::of(&seen).see(&seen, &[began], now(0)), []);
}
