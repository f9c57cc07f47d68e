//! The agent as a whole, between a small API server and fake shims: what `kubectl describe` shows of a pod's life, and what it does not when
//! something is away, slow, restarted or recreated.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod api_server;
mod costs;
mod fake_shim;
mod kubelets_own;
mod restarts;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use control_api::StopReason;
use control_api::container::{Role, State};
use control_api::event::{Cause, Kind};
use serde_json::{Value, json};
use tempfile::TempDir;

use api_server::{ApiServer, Behaviour};
use fake_shim::{FakeShim, container, held};

const WAITS: &str = "sidecar \"proxy\": connection refused";

/// A node with an API server.
struct World {
    run: TempDir,
    api: ApiServer,
    agent: Agent,
}

struct Agent(Child);

impl Agent {
    #[expect(clippy::disallowed_methods, reason = "a test runs the agent as a node does")]
    fn start(api: &ApiServer, run: &Path) -> Self {
        // A measurement is of a release.
        let program = std::env::var("PODSHIM_AGENT");
        let program = program.unwrap_or_else(|_| env!("CARGO_BIN_EXE_podshim-agent").to_owned());
        let mut command = Command::new(program);
        command.args(["--node", "node-7", "--node-file", "/nonexistent", "--run-dir"]).arg(run);
        command.arg("--api-server").arg(format!("http://{}", api.address));
        Self(command.stdin(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Agent {
    #[expect(clippy::disallowed_methods, reason = "the test's own child")]
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl World {
    fn new() -> Self {
        let (run, api) = (tempfile::tempdir().unwrap(), ApiServer::start());
        let agent = Agent::start(&api, run.path());
        Self { run, api, agent }
    }

    fn shim(&self, id: &str, uid: &str) -> FakeShim {
        FakeShim::start(self.run.path(), id, uid, starting(0))
    }

    /// The agent is killed and another one begins.
    fn restart_agent(&mut self) {
        self.agent = Agent::start(&self.api, self.run.path());
    }

    fn condition(&self) -> Option<(String, String)> {
        self.api.condition("prod", "web").map(|(status, reason, _)| (status, reason))
    }
}

/// Waits until it is so; 30 s is more than any machine needs.
#[track_caller]
fn until<T: PartialEq + std::fmt::Debug>(expected: T, mut found: impl FnMut() -> T) {
    for _ in 0..600 {
        if found() == expected {
            return;
        }
        thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(found(), expected);
}

/// As long as nothing is to come.
fn settle() {
    thread::sleep(Duration::from_millis(1500));
}

/// A pod `prod/web` of this node.
fn pod(uid: &str, gates: &[&str]) -> Value {
    let gates: Vec<Value> = gates.iter().map(|gate| json!({"conditionType": gate})).collect();
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": "prod", "name": "web", "uid": uid, "annotations": {
            "podshim.io/plan": "proxy=sidecar, app=main", "podshim.io/ready.proxy": "tcp::8080"}},
        "spec": {"nodeName": "node-7", "runtimeClassName": "podshim", "readinessGates": gates,
            "containers": [{"name": "app"}, {"name": "proxy"}]},
        "status": {"conditions": [{"type": "Ready", "status": "False"}]},
    })
}

const GATE: &[&str] = &["podshim.io/Started"];

fn starting(held_ms: u64) -> Vec<control_api::Container> {
    vec![container("proxy", Role::SIDECAR, State::RUNNING), held("app", WAITS, held_ms)]
}

fn running() -> Vec<control_api::Container> {
    vec![container("proxy", Role::SIDECAR, State::RUNNING), container("app", Role::MAIN, State::RUNNING)]
}

fn starts(shim: &FakeShim) {
    shim.shows(running());
    shim.happens(Kind::RUNNING, "app", |event| event.pid = 7);
}

#[test]
fn describe_has_the_story_of_a_held_pod() {
    let world = World::new();
    world.api.pod(pod("u-1", &[]));
    let shim = FakeShim::start(world.run.path(), "a", "u-1", starting(9_500));
    let is_held = format!("Normal Held \"app\" is held for 10s, waiting for {WAITS}");
    until(vec![is_held.clone()], || world.api.described("u-1"));
    shim.happens(Kind::GATE_FAILED, "proxy", |event| event.text = "tcp:8080 refused".to_owned());
    for _ in 0..2 {
        shim.happens(Kind::EXITED, "proxy", |event| event.code = Some(1));
        shim.happens(Kind::RESTART_DUE, "proxy", |_| {});
        shim.happens(Kind::STARTING, "proxy", |_| {});
        shim.happens(Kind::RUNNING, "proxy", |_| {});
        thread::sleep(Duration::from_millis(600));
    }
    starts(&shim);
    shim.change(|pod| pod.stop_reason = StopReason::CALLER.into());
    shim.happens(Kind::STOP_BEGAN, "", |event| {
        (event.stop_reason, event.duration_ms) = (StopReason::CALLER.into(), Some(30_000));
    });
    shim.happens(Kind::SIGNALLED, "app", |event| (event.signal, event.cause) = (9, Cause::GRACE.into()));
    let mut expected = vec![
        is_held,
        "Warning GateFailed the gate of \"proxy\" failed: tcp:8080 refused".to_owned(),
        "Warning Restarted x2 \"proxy\" exited with 1, and podshim started it again in place".to_owned(),
        "Normal StopBegan the stop begins (caller), within 30s".to_owned(),
        "Warning ForcedKill podshim killed \"app\": its own time is over".to_owned(),
    ];
    expected.sort();
    until(expected, || {
        let mut found = world.api.described("u-1");
        found.sort();
        found
    });
    assert_eq!(world.api.bad(), [""; 0]);
    let events = world.api.events();
    let instances: Vec<_> = events.iter().filter_map(|event| event["reportingInstance"].as_str()).collect();
    assert_eq!(instances, ["node-7"; 5]);
    assert!(world.api.writes().iter().all(|write| !write.contains("/status")), "the pod has no gate");
}

#[test]
fn the_condition_follows_the_pod() {
    let world = World::new();
    world.api.pod(pod("u-1", GATE));
    let shim = world.shim("a", "u-1");
    let is = |status: &str, reason: &str| Some((status.to_owned(), reason.to_owned()));
    until(is("False", "Held"), || world.condition());
    let (_, _, message) = world.api.condition("prod", "web").unwrap();
    assert_eq!(message, "main \"app\" is held, waiting for sidecar \"proxy\"");
    starts(&shim);
    until(is("True", "MainsRun"), || world.condition());
    shim.change(|pod| pod.stop_reason = StopReason::RESTART.into());
    shim.happens(Kind::POD_RESTART, "", |_| {});
    until(is("False", "Restarting"), || world.condition());
    shim.change(|pod| pod.stop_reason = StopReason::NOT_STOPPING.into());
    shim.happens(Kind::STOP_ENDED, "", |_| {});
    until(is("True", "MainsRun"), || world.condition());
    shim.change(|pod| pod.stop_reason = StopReason::CALLER.into());
    shim.happens(Kind::STOP_BEGAN, "", |event| event.stop_reason = StopReason::CALLER.into());
    until(is("False", "Stopping"), || world.condition());
    drop(shim);
    settle();
    assert_eq!(world.condition(), is("False", "Stopping"));
    let ready = world.api.condition_of_type("prod", "web", "Ready").map(|(status, ..)| status);
    assert_eq!(ready.as_deref(), Some("False"), "the kubelet's own is there as before");
    assert_eq!(world.api.bad(), [""; 0]);
}

/// A pod that starts and ends well is at most six writes.
#[test]
fn a_pod_that_starts_and_ends_well_costs_few_requests() {
    let world = World::new();
    world.api.pod(pod("u-1", GATE));
    let shim = world.shim("a", "u-1");
    for _ in 0..20 {
        shim.happens(Kind::CREATED, "app", |_| {});
    }
    starts(&shim);
    until(Some("True".to_owned()), || world.condition().map(|(status, _)| status));
    shim.change(|pod| pod.stop_reason = StopReason::CALLER.into());
    shim.happens(Kind::STOP_BEGAN, "", |event| event.stop_reason = StopReason::CALLER.into());
    until(Some("False".to_owned()), || world.condition().map(|(status, _)| status));
    drop(shim);
    settle();
    let writes = world.api.writes();
    assert!(writes.len() <= 3, "{writes:#?}");
}

/// The server is away while a hold begins and ends, and while the pod's state changes: it finds the state of now.
#[test]
fn an_api_server_that_was_away_gets_no_backlog() {
    let world = World::new();
    world.api.pod(pod("u-1", GATE));
    let shim = world.shim("a", "u-1");
    until(Some("False".to_owned()), || world.condition().map(|(status, _)| status));
    world.api.behaves(Behaviour::Away);
    shim.shows(starting(9_800));
    shim.happens(Kind::CREATED, "app", |_| {});
    for number in 0..30 {
        shim.happens(Kind::GATE_FAILED, "proxy", |event| event.text = format!("try {number}"));
    }
    shim.happens(Kind::GATE_FAILED, "old", |event| event.wall_ms -= 3_600_000);
    settle();
    // The agent knows the state of now before the server is back, however busy the machine is.
    let inspected = shim.inspected();
    starts(&shim);
    until(true, || shim.inspected() > inspected);
    settle();
    world.api.behaves(Behaviour::Answers);
    until(Some("True".to_owned()), || world.condition().map(|(status, _)| status));
    let failed = "Warning GateFailed the gate of \"proxy\" failed: try 29".to_owned();
    until(vec![failed], || world.api.described("u-1"));
    settle();
    assert_eq!(world.api.writes().len(), 3, "{:#?}", world.api.writes());
}

#[test]
fn a_server_that_refuses_events_gets_conditions_and_one_that_is_slow_delays_them() {
    let world = World::new();
    world.api.pod(pod("u-1", GATE));
    world.api.behaves(Behaviour::Refuses(403));
    let shim = FakeShim::start(world.run.path(), "a", "u-1", starting(12_000));
    settle();
    assert!(world.api.events().is_empty());
    world.api.behaves(Behaviour::Slow(Duration::from_secs(1)));
    starts(&shim);
    until(Some("True".to_owned()), || world.condition().map(|(status, _)| status));
    shim.happens(Kind::GATE_FAILED, "proxy", |event| event.text = "late".to_owned());
    until(vec!["Warning GateFailed the gate of \"proxy\" failed: late".to_owned()], || {
        world.api.described("u-1")
    });
    assert_eq!(world.api.bad(), [""; 0]);
}

#[test]
fn an_agent_that_is_restarted_repeats_nothing() {
    let mut world = World::new();
    world.api.pod(pod("u-1", GATE));
    let shim = FakeShim::start(world.run.path(), "a", "u-1", starting(70_000));
    shim.happens(Kind::GATE_FAILED, "proxy", |event| event.text = "refused".to_owned());
    for _ in 0..3 {
        shim.happens(Kind::EXITED, "proxy", |event| event.code = Some(1));
        shim.happens(Kind::RESTART_DUE, "proxy", |_| {});
        shim.happens(Kind::RUNNING, "proxy", |_| {});
    }
    until(3, || world.api.described("u-1").len());
    until(Some("False".to_owned()), || world.condition().map(|(status, _)| status));
    let before = world.api.described("u-1");
    let conditions = |api: &ApiServer| api.writes().iter().filter(|write| write.ends_with("/status")).count();
    assert_eq!(conditions(&world.api), 1);
    for _ in 0..2 {
        let (inspected, lists) = (shim.inspected(), world.api.lists());
        world.restart_agent();
        until((true, true), || (shim.inspected() > inspected, world.api.lists() > lists));
        settle();
    }
    assert_eq!(world.api.described("u-1"), before);
    assert_eq!(conditions(&world.api), 1, "the condition is as it was");
    // And it goes on with the same series.
    shim.happens(Kind::EXITED, "proxy", |event| event.code = Some(1));
    shim.happens(Kind::RESTART_DUE, "proxy", |_| {});
    shim.happens(Kind::RUNNING, "proxy", |_| {});
    until(1, || world.api.described("u-1").iter().filter(|line| line.contains("Restarted x4")).count());
    assert_eq!(world.api.described("u-1").len(), 3);
}

/// A StatefulSet's pod is deleted and recreated under its name, and the old one's shim ends late.
#[test]
fn a_recreated_pod_is_not_taken_for_the_old_one() {
    let world = World::new();
    world.api.pod(pod("u-1", GATE));
    let old = world.shim("a", "u-1");
    starts(&old);
    until(Some("True".to_owned()), || world.condition().map(|(status, _)| status));
    world.api.delete_pod("prod", "web");
    world.api.pod(pod("u-2", GATE));
    old.change(|pod| pod.stop_reason = StopReason::CALLER.into());
    old.happens(Kind::STOP_BEGAN, "", |event| event.stop_reason = StopReason::CALLER.into());
    settle();
    assert_eq!(world.condition(), None);
    assert_eq!(world.api.described("u-1"), [""; 0]);
    let new = world.shim("b", "u-2");
    starts(&new);
    until(Some(("True".to_owned(), "MainsRun".to_owned())), || world.condition());
    drop(old);
    settle();
    assert_eq!(world.condition(), Some(("True".to_owned(), "MainsRun".to_owned())));
}

#[test]
fn a_contradiction_is_reported_with_the_annotation_that_mends_it() {
    let world = World::new();
    let mut object = pod("u-1", &[]);
    object["spec"]["restartPolicy"] = json!("Never");
    world.api.pod(object);
    let _shim = world.shim("a", "u-1");
    let found = "Warning PlanMismatch the pod's restartPolicy is Never, the plan's is Always: \
                 write podshim.io/restart-policy: Never";
    until(vec![found.to_owned()], || world.api.described("u-1"));
}

/// A pod's programs write what a probe repeats.
#[test]
fn a_hostile_text_is_bounded_and_printable() {
    let world = World::new();
    world.api.pod(pod("u-1", &[]));
    let shim = world.shim("a", "u-1");
    shim.happens(Kind::GATE_FAILED, "proxy", |event| event.text = "\x1b[2J\n\u{202e}".repeat(1000));
    until(1, || world.api.described("u-1").len());
    let found = world.api.described("u-1").join("");
    assert!(found.chars().all(|letter| !letter.is_control() && letter != '\u{202e}'), "{found}");
    assert_eq!(world.api.bad(), [""; 0]);
}

/// A pod that only has its name from elsewhere, such as one of crictl: it is not on this node's list.
#[test]
fn nothing_is_written_of_a_pod_of_another_node() {
    let world = World::new();
    let mut object = pod("u-1", GATE);
    object["spec"]["nodeName"] = json!("node-8");
    world.api.pod(object);
    let shim = FakeShim::start(world.run.path(), "a", "u-1", starting(12_000));
    starts(&shim);
    // One of this node after it: what there is to write of the first one would have been written by then.
    let mut own = pod("u-2", GATE);
    own["metadata"]["name"] = json!("own");
    world.api.pod(own);
    let other = FakeShim::named("own", world.run.path(), "b", "u-2", starting(0));
    starts(&other);
    until(true, || world.api.condition("prod", "own").is_some_and(|(status, ..)| status == "True"));
    settle();
    let writes = world.api.writes();
    assert!(writes.iter().all(|write| write.ends_with("/pods/own/status")), "{writes:?}");
}

/// Its kills, just before it ends.
#[test]
fn the_last_events_of_a_shim_are_written() {
    let world = World::new();
    world.api.pod(pod("u-1", &[]));
    let shim = FakeShim::start(world.run.path(), "a", "u-1", running());
    until(true, || shim.inspected() > 0);
    settle();
    shim.happens(Kind::SIGNALLED, "app", |event| (event.signal, event.cause) = (9, Cause::BUDGET.into()));
    // The answer has left the shim, and the agent waits for the rest of the group.
    thread::sleep(Duration::from_millis(60));
    drop(shim);
    until(1, || world.api.described("u-1").len());
    assert!(world.api.described("u-1")[0].starts_with("Warning ForcedKill podshim killed \"app\""));
}

/// A request hangs while the hold that it is about ends.
#[test]
fn what_is_over_is_not_written_when_a_server_that_hung_answers_again() {
    let world = World::new();
    world.api.pod(pod("u-1", &[]));
    world.api.behaves(Behaviour::Hangs);
    let shim = FakeShim::start(world.run.path(), "a", "u-1", starting(9_800));
    until(1, || world.api.hung());
    starts(&shim);
    settle();
    world.api.behaves(Behaviour::Answers);
    shim.happens(Kind::GATE_FAILED, "proxy", |event| event.text = "late".to_owned());
    until(vec!["Warning GateFailed the gate of \"proxy\" failed: late".to_owned()], || {
        world.api.described("u-1")
    });
    settle();
    assert_eq!(world.api.described("u-1").len(), 1);
}

/// More of them than an answer has.
#[test]
fn all_pods_of_a_list_are_known() {
    let mut world = World::new();
    let name = |number: usize| format!("web-{number}");
    let mut shims = Vec::new();
    for number in 0..12 {
        let mut object = pod(&format!("u-{number}"), GATE);
        object["metadata"]["name"] = json!(name(number));
        world.api.pod(object);
    }
    world.restart_agent();
    for number in 0..12 {
        let (id, uid) = (format!("s-{number}"), format!("u-{number}"));
        shims.push(FakeShim::named(&name(number), world.run.path(), &id, &uid, running()));
    }
    let is_true = |number: &usize| {
        world.api.condition("prod", &name(*number)).is_some_and(|(status, ..)| status == "True")
    };
    until(12, || (0..12).filter(is_true).count());
    assert_eq!(world.api.bad(), [""; 0]);
}

/// The node was booted again while the condition was true.
#[test]
fn a_pod_that_ended_without_an_agent_is_shown_as_ended() {
    let mut world = World::new();
    let mut object = pod("u-1", GATE);
    let conditions = json!([{"type": "Ready", "status": "True"},
        {"type": "podshim.io/Started", "status": "True", "reason": "MainsRun", "message": "every main of the plan runs"}]);
    object["status"]["conditions"] = conditions;
    world.api.pod(object);
    world.restart_agent();
    until(Some(("False".to_owned(), "NotRunning".to_owned())), || world.condition());
}
