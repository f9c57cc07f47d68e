use control_api::Container;
use control_api::container::{Role, State};
use control_api::event::Kind;

use super::*;

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
    PodObject {
        pod,
        gate,
        condition: None,
        containers: BTreeSet::from(["app".to_owned()]),
        contradictions: Vec::new(),
        mistaken_mains: Vec::new(),
        kubelets_own: BTreeSet::new(),
        restart: None,
    }
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
    assert_eq!(short(&node.pods_listed(&BTreeSet::from(["u-3".to_owned()]), now(6))), ["forget u-2"]);
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
    node.condition_answered(patch, now(2));
    let shown = Shown {
        status: Status::False,
        reason: "NotStarted".to_owned(),
        message: patch.started.message.clone(),
        since_ms: None,
    };
    let object = PodObject { condition: Some(shown), ..object("u-1", ReadinessGate::Named) };
    assert!(node.pod_applied(object, now(3)).is_empty());
    assert_eq!(node.next_due(now(3)), None);
}

/// Two mains that only `*=main` names: a kubelet creates them one after the other, and the shim knows the second one from then on.
#[test]
fn the_mains_run_when_all_of_them_are_there() {
    let mut node = Node::default();
    let containers = BTreeSet::from(["app".to_owned(), "app2".to_owned()]);
    node.pod_applied(PodObject { containers, ..object("u-1", ReadinessGate::Named) }, now(0));
    let mut running = seen("a", "u-1", State::RUNNING);
    assert!(node.shim_seen(&running, &[], now(1)).is_empty());
    let writes = node.tick(now(2));
    let Some(Write::Condition(patch)) = writes.first() else { panic!("{writes:?}") };
    assert_eq!(
        (short(&writes).join(""), &*patch.started.message),
        ("NotStarted u-1".to_owned(), "container \"app2\" does not exist now")
    );
    let second = Container { name: "app2".to_owned(), ..running.containers[0].clone() };
    running.containers.push(second);
    assert_eq!(short(&node.shim_seen(&running, &[], now(3))), ["MainsRun u-1"]);
    // It has ended, and its caller has removed it.
    running.containers.pop();
    assert_eq!(short(&node.shim_seen(&running, &[], now(4))), ["NotStarted u-1"]);
    running.containers[0].role = Role::PASSTHROUGH.into();
    assert_eq!(short(&node.shim_seen(&running, &[], now(5))), [""; 0], "a pod without a plan, too");
}

fn shown_as(uid: &str, reason: &str) -> PodObject {
    let shown = Shown {
        status: Status::True,
        reason: reason.to_owned(),
        message: "every main of the plan runs".to_owned(),
        since_ms: Some(1),
    };
    PodObject { condition: Some(shown), ..object(uid, ReadinessGate::Named) }
}

/// The node was booted again: what the agent before this one has written is not so any more.
#[test]
fn a_pod_that_ended_without_an_agent_is_not_started() {
    let uids = BTreeSet::from(["u-1".to_owned(), "u-2".to_owned()]);
    let listed = || {
        let mut node = Node::default();
        node.pod_applied(shown_as("u-1", "MainsRun"), now(0));
        let other = PodName { name: "other".to_owned(), ..object("u-2", ReadinessGate::Named).pod };
        // Another runtime runs it, and another program writes its condition.
        node.pod_applied(PodObject { pod: other, ..shown_as("u-2", "ByHand") }, now(0));
        assert!(node.pods_listed(&uids, now(0)).is_empty(), "the directory may have its shim");
        node
    };
    assert_eq!(short(&listed().shims_found(vec![], now(1))), ["NotRunning u-1"]);
    let mut node = listed();
    let found = FoundShim { id: "a".to_owned(), namespace: "prod".to_owned(), name: "web".to_owned() };
    assert!(node.shims_found(vec![found.clone()], now(1)).is_empty(), "its shim answers slowly");
    assert_eq!(short(&node.shim_gone("a", now(8))), ["NotRunning u-1"], "it was dead");
    let mut node = listed();
    node.shims_found(vec![found], now(1));
    assert!(node.shim_seen(&seen("a", "u-1", State::RUNNING), &[], now(2)).is_empty());
    assert!(node.pods_listed(&uids, now(3)).is_empty());
}

/// What was so until a shim's end waits for the API server no longer.
#[test]
fn a_shims_end_withdraws_what_was_so() {
    let mut node = Node::default();
    node.pod_applied(object("u-1", ReadinessGate::Absent), now(0));
    let mut held = seen("a", "u-1", State::HELD);
    held.containers[0].gate_wait_ms = Some(12_000);
    held.fault = "a fault".to_owned();
    assert_eq!(short(&node.shim_seen(&held, &[], now(1))), ["Held u-1", "PlanFault u-1"]);
    assert_eq!(short(&node.shim_gone("a", now(2))), ["not Held", "not PlanFault"]);
}

/// The API server was away longer than what has happened is worth.
#[test]
fn what_waited_too_long_for_its_pod_is_counted() {
    let mut node = Node::default();
    let event = Event { wall_ms: 1, ..failed(1, "app") };
    assert!(node.shim_seen(&seen("a", "u-1", State::RUNNING), &[event], now(1)).is_empty());
    assert_eq!(short(&node.pod_applied(object("u-1", ReadinessGate::Absent), now(700))), ["dropped"]);
}
