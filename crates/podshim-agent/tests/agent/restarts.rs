//! Restarts that are asked for from the cluster: each value once, whatever becomes of the agent.

use control_api::event::Kind;
use serde_json::{Value, json};

use crate::{FakeShim, GATE, World, pod, running, settle, until};

const ASKS: &str = "the annotation podshim.io/restart asks for a restart of the pod in place";

/// The pod with that value.
fn asking(value: &str) -> Value {
    let mut object = pod("u-1", GATE);
    object["metadata"]["annotations"]["podshim.io/restart"] = json!(value);
    object
}

fn described(world: &World) -> Vec<String> {
    let mut found = world.api.described("u-1");
    found.retain(|line| line.contains("Restart"));
    found.sort();
    found
}

fn begins(value: &str) -> String {
    format!("Normal RestartAsked {ASKS} ({value:?}): it begins")
}

#[test]
fn each_value_restarts_the_pod_once_with_however_many_agents() {
    let mut world = World::new();
    world.api.pod(pod("u-1", GATE));
    let shim = FakeShim::start(world.run.path(), "a", "u-1", running());
    until(true, || world.condition().is_some());
    assert_eq!(shim.restarts(), [""; 0]);
    world.api.pod(asking("one"));
    until(vec![begins("one")], || described(&world));
    assert_eq!(shim.restarts(), ["one"]);
    let inspected = shim.inspected();
    world.restart_agent();
    until(true, || shim.inspected() > inspected);
    settle();
    world.api.pod(asking("two"));
    until(vec![begins("one"), begins("two")], || described(&world));
    assert_eq!(shim.restarts(), ["one", "two"]);
    // It was asked for while there was no agent.
    drop(std::mem::replace(
        &mut world.agent,
        crate::Agent::start(&world.api, std::path::Path::new("/nonexistent")),
    ));
    world.api.pod(asking("three"));
    settle();
    assert_eq!(shim.restarts(), ["one", "two"]);
    world.restart_agent();
    until(vec![begins("one"), begins("three"), begins("two")], || described(&world));
    assert_eq!(shim.restarts(), ["one", "two", "three"]);
    assert_eq!(world.api.bad(), [""; 0]);
}

#[test]
fn what_a_shim_refuses_is_an_event_and_is_not_tried_again() {
    let mut world = World::new();
    world.api.pod(pod("u-1", GATE));
    let shim = FakeShim::start(world.run.path(), "a", "u-1", running());
    shim.refuses("it is complete");
    world.api.pod(asking("one"));
    let refused = format!("Warning RestartRefused {ASKS} (\"one\"): podshim does not do it: it is complete");
    until(vec![refused.clone()], || described(&world));
    shim.refuses("");
    let inspected = shim.inspected();
    world.restart_agent();
    until(true, || shim.inspected() > inspected);
    settle();
    assert_eq!((shim.restarts(), described(&world)), (vec!["one".to_owned()], vec![refused]));
}

/// A pod from a template with the annotation, and one whose shim would restart it for each agent.
#[test]
fn a_value_from_the_pods_beginning_and_an_old_shim_restart_nothing() {
    let world = World::new();
    let shim = FakeShim::start(world.run.path(), "a", "u-1", running());
    let shows = |value: Option<&str>| {
        shim.change(|pod| pod.restart_request = value.map(str::to_owned));
        let inspected = shim.inspected();
        shim.happens(Kind::CREATED, "app", |_| {});
        until(true, || shim.inspected() > inspected);
        settle();
    };
    shows(Some("one"));
    world.api.pod(asking("one"));
    until(true, || world.condition().is_some());
    settle();
    assert_eq!((shim.restarts(), described(&world)), (vec![], vec![]));
    shows(None);
    let refused =
        format!("Warning RestartRefused {ASKS} (\"one\"): its shim is of an earlier release, which cannot");
    until(vec![refused], || described(&world));
    assert_eq!(shim.restarts(), [""; 0]);
}
