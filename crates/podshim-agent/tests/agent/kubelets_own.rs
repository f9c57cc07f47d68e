//! The names of init and ephemeral containers, which only the pod's object has: each list once, whatever becomes of the agent (S15).

use control_api::Names;
use control_api::event::Kind;
use serde_json::{Value, json};

use crate::{FakeShim, GATE, World, pod, running, settle, until};

/// The pod with `*=main` in its plan, these init containers and these of `kubectl debug`.
fn object(inits: &[&str], ephemeral: &[&str]) -> Value {
    let mut object = pod("u-1", GATE);
    object["metadata"]["annotations"]["podshim.io/plan"] = json!("proxy=sidecar, *=main");
    let named = |names: &[&str]| names.iter().map(|name| json!({"name": name})).collect::<Value>();
    object["spec"]["initContainers"] = named(inits);
    object["spec"]["ephemeralContainers"] = named(ephemeral);
    object
}

/// A shim whose plan has `*=main`.
fn shim(world: &World) -> FakeShim {
    let shim = FakeShim::start(world.run.path(), "a", "u-1", running());
    shim.change(|pod| pod.kubelets_own = Some(Names::default()).into());
    shim
}

fn mismatches(world: &World) -> Vec<String> {
    world.api.described("u-1").into_iter().filter(|line| line.contains("PlanMismatch")).collect()
}

#[test]
fn each_list_is_passed_on_once_with_however_many_agents() {
    let mut world = World::new();
    world.api.pod(object(&["load"], &[]));
    let shim = shim(&world);
    until(vec![vec!["load".to_owned()]], || shim.kubelets_own());
    let both = || vec![vec!["load".to_owned()], vec!["load".to_owned(), "look".to_owned()]];
    world.api.pod(object(&["load"], &["look"]));
    until(both(), || shim.kubelets_own());
    let inspected = shim.inspected();
    world.restart_agent();
    until(true, || shim.inspected() > inspected);
    settle();
    assert_eq!(shim.kubelets_own(), both());
    assert_eq!((mismatches(&world), world.api.bad()), (vec![], vec![]), "the plan needs no word for it");
}

/// It would be asked at each of the pod's events.
#[test]
fn what_a_shim_refuses_is_not_passed_on_again() {
    let world = World::new();
    world.api.pod(object(&["load"], &[]));
    let shim = shim(&world);
    shim.refuses("it does not");
    until(1, || shim.kubelets_own().len());
    let inspected = shim.inspected();
    shim.happens(Kind::CREATED, "app", |_| {});
    until(true, || shim.inspected() > inspected);
    settle();
    assert_eq!(shim.kubelets_own().len(), 1);
}

/// One of an earlier release: what would hang is an event, with what mends it.
#[test]
fn an_old_shim_gets_no_names() {
    let world = World::new();
    world.api.pod(object(&["load"], &[]));
    let shim = FakeShim::start(world.run.path(), "a", "u-1", running());
    until(1, || mismatches(&world).len());
    assert!(
        mismatches(&world)[0].ends_with(": write podshim.io/role.load: none"),
        "{:?}",
        mismatches(&world)
    );
    settle();
    assert_eq!(shim.kubelets_own(), Vec::<Vec<String>>::new());
}
