use control_api::Container;
use control_api::container::{Role, State};
use control_api::event::Kind;

use super::*;
use crate::object::Shown;
use crate::report::PodName;

fn now(seconds: u64) -> Now {
    Now { run: Duration::from_secs(10_000 + seconds), wall_ms: i64::try_from(seconds).unwrap() * 1000 }
}

fn seen(shim: &str, uid: &str, app: State) -> InspectResponse {
    let app = Container {
        id: "id-of-app".to_owned(),
        name: "app".to_owned(),
        role: Role::MAIN.into(),
        state: app.into(),
        ..Default::default()
    };
    InspectResponse {
        id: shim.to_owned(),
        pod_uid: uid.to_owned(),
        pod_name: "web".to_owned(),
        pod_namespace: "prod".to_owned(),
        containers: vec![app],
        ..Default::default()
    }
}

fn object(uid: &str, gate: ReadinessGate) -> PodObject {
    let pod = PodName { uid: uid.to_owned(), namespace: "prod".to_owned(), name: "web".to_owned() };
    PodObject { pod, gate, condition: None, contradictions: Vec::new() }
}

fn failed(sequence: u64, name: &str) -> Event {
    Event { sequence, kind: Kind::GATE_FAILED.into(), name: name.to_owned(), ..Default::default() }
}

/// The names of what is written, in short.
fn short(writes: &[Write]) -> Vec<String> {
    let of = |write: &Write| match write {
        Write::Report(report) => format!("{} {}", report.topic.reason.word(), report.pod.uid),
        Write::Withdraw(topic) => format!("not {}", topic.reason.word()),
        Write::Condition(patch) => format!("{} {}", patch.started.reason.word(), patch.pod.uid),
        Write::Forget(uid) => format!("forget {uid}"),
        Write::Dropped => "dropped".to_owned(),
    };
    writes.iter().map(of).collect()
}

#[test]
fn nothing_is_written_of_a_pod_that_the_api_server_does_not_have() {
    let mut node = Node::default();
    let running = seen("a", "u-1", State::RUNNING);
    assert!(node.shim_seen(&running, &[failed(1, "app")], now(0)).is_empty());
    let other = PodObject {
        pod: PodName { name: "other".to_owned(), ..object("u-1", ReadinessGate::Named).pod },
        ..object("u-1", ReadinessGate::Named)
    };
    assert!(node.pod_applied(other, now(1)).is_empty(), "a shim that knows another name for it");
    let writes = node.pod_applied(object("u-1", ReadinessGate::Named), now(2));
    assert_eq!(short(&writes), ["GateFailed u-1", "MainsRun u-1"]);
}

/// A StatefulSet recreates a pod under its name: the uid decides.
#[test]
fn a_recreated_pod_is_another_one() {
    let mut node = Node::default();
    node.pod_applied(object("u-1", ReadinessGate::Named), now(0));
    assert_eq!(short(&node.shim_seen(&seen("a", "u-1", State::RUNNING), &[], now(1))), ["MainsRun u-1"]);
    assert_eq!(short(&node.pod_gone("u-1")), ["forget u-1"]);
    assert!(node.pod_applied(object("u-2", ReadinessGate::Named), now(2)).is_empty());
    assert!(node.shim_seen(&seen("a", "u-1", State::EXITED), &[failed(1, "app")], now(3)).is_empty());
    assert_eq!(short(&node.shim_seen(&seen("b", "u-2", State::RUNNING), &[], now(4))), ["MainsRun u-2"]);
    assert!(node.shim_gone("a", now(5)).is_empty());
    assert_eq!(short(&node.pods_listed(&BTreeSet::from(["u-3".to_owned()]))), ["forget u-2"]);
}

/// A kubelet makes a pod another sandbox: the old one's shim says nothing of its condition any more.
#[test]
fn of_two_sandboxes_the_newer_one_counts() {
    let mut node = Node::default();
    node.pod_applied(object("u-1", ReadinessGate::Named), now(0));
    let newer = InspectResponse { started_at_ms: 2, ..seen("b", "u-1", State::RUNNING) };
    assert_eq!(short(&node.shim_seen(&newer, &[], now(1))), ["MainsRun u-1"]);
    let older = InspectResponse { started_at_ms: 1, ..seen("a", "u-1", State::EXITED) };
    assert!(node.shim_seen(&older, &[], now(2)).is_empty());
    assert!(node.shim_gone("a", now(3)).is_empty());
    assert_eq!(short(&node.shim_gone("b", now(4))), ["NotRunning u-1"], "its shim was killed");
}

#[test]
fn a_pods_events_are_bounded() {
    let mut node = Node::default();
    node.pod_applied(object("u-1", ReadinessGate::Absent), now(0));
    let mut written = Vec::new();
    for number in 0..40 {
        let event = failed(number, &format!("c-{number}"));
        written.extend(node.shim_seen(&seen("a", "u-1", State::RUNNING), &[event], now(1)));
    }
    let dropped = written.iter().filter(|write| **write == Write::Dropped).count();
    assert_eq!((written.len(), dropped), (40, 15));
    let later = node.shim_seen(&seen("a", "u-1", State::RUNNING), &[failed(50, "app")], now(301));
    assert_eq!(short(&later), ["GateFailed u-1"]);
}

#[test]
fn a_contradiction_is_reported_once() {
    let mut node = Node::default();
    let object =
        PodObject { contradictions: vec!["text".to_owned()], ..object("u-1", ReadinessGate::Absent) };
    assert!(node.pod_applied(object.clone(), now(0)).is_empty(), "its shim may not be podshim");
    let writes = node.shim_seen(&seen("a", "u-1", State::RUNNING), &[], now(1));
    assert_eq!(short(&writes), ["PlanMismatch u-1"]);
    assert!(node.pod_applied(object, now(2)).is_empty());
}

#[test]
fn a_condition_that_settles_is_written_when_it_is_due() {
    let mut node = Node::default();
    node.pod_applied(object("u-1", ReadinessGate::Named), now(0));
    assert!(node.shim_seen(&seen("a", "u-1", State::CREATED), &[], now(1)).is_empty());
    assert_eq!(node.next_due(now(1)), Some(now(2).run));
    let writes = node.tick(now(2));
    assert_eq!(short(&writes), ["NotStarted u-1"]);
    let Some(Write::Condition(patch)) = writes.first() else { panic!("{writes:?}") };
    node.condition_taken(patch, now(2));
    let shown = Shown {
        status: "False".to_owned(),
        reason: "NotStarted".to_owned(),
        message: patch.started.message.clone(),
        since_ms: None,
    };
    let object = PodObject { condition: Some(shown), ..object("u-1", ReadinessGate::Named) };
    assert!(node.pod_applied(object, now(3)).is_empty());
    assert_eq!(node.next_due(now(3)), None);
}
