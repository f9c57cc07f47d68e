//! What a pod answers between two events: the shim's questions of `Pod`, over the life of a container.

mod driver;

use pod_lifecycle::{
    ContainerId, Event, Exit, InspectedPart, Operation, Outcome, PodTime, Request, StartBarrier, Status,
    Target, TaskKind, WallTime,
};
use pod_spec::{Role, Signal};

use driver::Driver;

fn exits(driver: &mut Driver, name: &str, code: u32) {
    driver.feed(Event::Exited { target: Target::init(name.into()), exit: Exit { code, ..Exit::default() } });
}

fn delete(driver: &mut Driver, name: &str) {
    driver.ask(Request::Delete(Target::init(name.into())));
}

fn status(driver: &Driver, name: &str) -> Option<Status> {
    driver.pod.view(&Target::init(name.into())).ok().map(|view| view.status)
}

fn names(driver: &Driver) -> Vec<&str> {
    driver.pod.containers().map(ContainerId::as_str).collect()
}

#[test]
fn a_pod_without_containers_has_nothing_to_do() {
    let driver = Driver::new("app=main");
    assert!(driver.pod.is_empty() && driver.pod.is_leaving() && driver.pod.is_final());
    assert!(!driver.pod.plan_is_settled() && !driver.pod.is_stopping());
    assert_eq!(driver.pod.name_of(&"app".into()), None);
    assert!(driver.pod.stop_order(&"app".into()).is_none());
    assert!(driver.pod.part_and_restarts(&"app".into()).is_none());
}

#[test]
fn a_container_is_there_until_it_is_deleted() {
    let mut driver = Driver::new("app=main");
    driver.run("app", |_| {});
    assert_eq!(names(&driver), ["app"]);
    assert_eq!(driver.pod.name_of(&"app".into()), Some("app"));
    assert!(!driver.pod.is_empty() && !driver.pod.is_leaving() && !driver.pod.is_final());
    assert!(driver.pod.plan_is_settled());
    assert_eq!(status(&driver, "app"), Some(Status::Running));
    exits(&mut driver, "app", 3);
    assert_eq!(status(&driver, "app"), Some(Status::Stopped));
    assert!(driver.pod.is_final() && !driver.pod.is_leaving());
    driver.endless = |operation| matches!(operation, Operation::Remove);
    delete(&mut driver, "app");
    assert!(driver.pod.is_leaving() && !driver.pod.is_final() && !driver.pod.is_empty());

    let mut driver = Driver::new("app=main");
    driver.run("app", |_| {});
    exits(&mut driver, "app", 3);
    delete(&mut driver, "app");
    assert!(driver.pod.is_empty());
    assert_eq!(status(&driver, "app"), None);
}

/// F13: a sandbox of the Sandbox API has pid 0, which containerd takes for no process.
#[test]
fn f13_a_sandbox_without_a_process_stands_in_for_no_container() {
    let mut driver = Driver::new("s1=sidecar, app=main");
    for (name, pid) in [("pause", 0), ("s1", 17), ("app", 18)] {
        driver.next_pid = pid;
        driver.run(name, |spec| {
            if name == "pause" {
                spec.kind = TaskKind::Sandbox;
            }
        });
    }
    exits(&mut driver, "s1", 1);
    let view = driver.pod.view(&Target::init("s1".into())).expect("it waits for its restart");
    assert_eq!((view.status, view.pid, view.has_process), (Status::Running, 18, false));
}

/// U1: the shim listens for a gate's word from the first moment of its process, and says why a container waits.
#[test]
fn u1_a_closed_gate_and_what_it_holds_are_named() {
    let mut driver = Driver::with_keys("s1=sidecar, app=main", &[("podshim.io/ready.s1", "log:ready")]);
    driver.endless = |operation| matches!(operation, Operation::Check(_));
    driver.run("s1", |_| {});
    driver.run("app", |_| {});
    let gate = driver.pod.closed_gate(&"s1".into()).map(ToString::to_string);
    assert_eq!(gate.as_deref(), Some("log:ready"));
    assert_eq!(driver.pod.closed_gate(&"app".into()), None);
    assert_eq!(driver.pod.hold_reason(&"s1".into()), None);
    let reason = driver.pod.hold_reason(&"app".into()).unwrap();
    assert!(reason.starts_with("sidecar \"s1\""), "{reason}");

    let mut open = Driver::with_keys("s1=sidecar, app=main", &[("podshim.io/ready.s1", "log:ready")]);
    open.run("s1", |_| {});
    open.run("app", |_| {});
    assert_eq!(open.pod.closed_gate(&"s1".into()), None);
    assert_eq!(open.pod.hold_reason(&"app".into()), None);
}

/// R4: of a container that is gone the shim keeps what it was, and how often podshim restarted it.
#[test]
fn r4_part_and_restarts_are_known_to_the_last() {
    let mut driver = Driver::new("s1=sidecar, app=main");
    driver.run("s1", |_| {});
    driver.run("app", |_| {});
    let sidecar = InspectedPart::Planned(Role::Sidecar);
    assert_eq!(driver.pod.part_and_restarts(&"s1".into()), Some((sidecar, [0, 0])));
    exits(&mut driver, "s1", 1);
    assert_eq!(driver.pod.part_and_restarts(&"s1".into()), Some((sidecar, [1, 1])));
    let main = InspectedPart::Planned(Role::Main);
    assert_eq!(driver.pod.part_and_restarts(&"app".into()), Some((main, [0, 0])));
}

/// N5: what systemd has to know of a container's end.
#[test]
fn n5_the_sandbox_outlives_all_others() {
    let mut driver = Driver::with_keys("app=main", &[("podshim.io/grace", "7s")]);
    driver.run("pause", |spec| spec.kind = TaskKind::Sandbox);
    driver.run("app", |_| {});
    let order = driver.pod.stop_order(&"app".into()).unwrap();
    assert_eq!(order.outlived_by, Some("pause".into()));
    assert!(order.grace.as_secs() >= 7, "{:?}", order.grace);
    assert_eq!(driver.pod.stop_order(&"pause".into()).unwrap().outlived_by, None);
    delete(&mut driver, "pause");
    assert_eq!(driver.pod.inspect(PodTime::ZERO).containers.len(), 2, "a running sandbox is not deleted");
}

/// K16: a sandbox that could not be created has not ended, and one that is deleted is none any more.
#[test]
fn k16_only_a_sandbox_that_was_there_ends() {
    let mut driver = Driver::new("app=main");
    driver.run("pause", |spec| spec.kind = TaskKind::Sandbox);
    driver.run("app", |_| {});
    exits(&mut driver, "pause", 137);
    assert!(driver.pod.is_stopping());
    exits(&mut driver, "app", 137);
    delete(&mut driver, "pause");
    assert_eq!(names(&driver), ["app"]);
    assert_eq!(driver.pod.stop_order(&"app".into()).unwrap().outlived_by, None);
}

/// K16: the other two: one that could not be created, and one that was never started.
#[test]
fn k16_a_sandbox_that_never_ran() {
    let mut driver = Driver::new("app=main");
    driver.failing = |operation| matches!(operation, Operation::Create);
    driver.create("pause", |spec| spec.kind = TaskKind::Sandbox);
    driver.failing = |_| false;
    driver.create("pause", |_| {});
    driver.run("app", |_| {});
    delete(&mut driver, "pause");
    assert_eq!(names(&driver), ["app"]);
    assert!(!driver.pod.is_stopping(), "a container of that name was no sandbox");

    let mut driver = Driver::new("app=main");
    driver.create("pause", |spec| spec.kind = TaskKind::Sandbox);
    driver.run("app", |_| {});
    delete(&mut driver, "pause");
    assert_eq!(names(&driver), ["app"]);
    assert!(driver.pod.is_stopping());
}

/// The shim takes no further container once all are leaving: a create whose Delete waits counts.
#[test]
fn a_create_that_is_to_be_deleted_is_leaving() {
    let mut driver = Driver::new("app=main");
    driver.endless = |operation| matches!(operation, Operation::Create);
    driver.create("app", |_| {});
    assert!(!driver.pod.is_leaving());
    delete(&mut driver, "app");
    assert!(driver.pod.is_leaving());
}

/// N1: a Wait whose caller is gone is not answered, and those of others are.
#[test]
fn n1_only_the_abandoned_wait_is_forgotten() {
    let mut driver = Driver::new("app=main");
    driver.run("app", |_| {});
    let gone = driver.ask(Request::Wait(Target::init("app".into())));
    let here = driver.ask(Request::Wait(Target::init("app".into())));
    driver.feed(Event::Abandoned { id: gone });
    driver.answered.clear();
    exits(&mut driver, "app", 0);
    assert_eq!(driver.answered, [here]);
}

/// What the driver's contract rules out is ignored, with a warning that names it.
#[test]
fn what_cannot_be_is_a_warning() {
    let mut driver = Driver::new("app=main");
    driver.create("app", |_| {});
    exits(&mut driver, "app", 0);
    exits(&mut driver, "app", 0);
    assert_eq!(driver.warnings, ["ignored, as it cannot be: exit of container app, which has no process"]);

    let mut driver = Driver::new("app=main");
    driver.run("app", |_| {});
    driver.ask(Request::Exec { container: "app".into(), exec: "e".into() });
    let target = Target { container: "app".into(), exec: Some("e".into()) };
    driver.feed(Event::Exited { target, exit: Exit::default() });
    driver.endless = |operation| matches!(operation, Operation::Create);
    driver.create("b", |_| {});
    driver.feed(Event::Done { op: driver.last_op, outcome: Outcome::Ok, at: WallTime::default() });
    assert_eq!(
        driver.warnings,
        [
            "ignored, as it cannot be: exit of exec e of container app, which does not run",
            "ignored, as it cannot be: container b created without a process",
        ]
    );
}

/// 11.4: the first container's plan is the pod's; a container that declares another one is named.
#[test]
fn another_plan_than_the_pods_is_a_warning() {
    let mut driver = Driver::new("app=main, b=main");
    driver.run("app", |_| {});
    driver.run("b", |_| {});
    assert!(driver.warnings.is_empty(), "{:?}", driver.warnings);
    driver.declare("c=main");
    driver.create("c", |_| {});
    assert_eq!(driver.warnings.len(), 1);
    assert!(driver.warnings[0].contains("\"c\" declares another plan"), "{:?}", driver.warnings);
}

/// K3, K6: between the kill of the runtime's init and its exit there is nothing more to signal.
#[test]
fn k3_a_held_container_is_killed_once() {
    let mut driver = Driver::new("s1=sidecar, app=main");
    driver.run("app", |_| {});
    driver.signal("app", Signal::TERM);
    assert_eq!(driver.signalled(), ["app"]);
    driver.signal("app", Signal::KILL);
    driver.signal("app", Signal::TERM);
    assert_eq!(driver.signalled(), ["app"]);
    driver.signal("app", Signal::HUP);
    assert_eq!(driver.refusals, ["cannot send signal 1 to container app: it is ending"]);
}

/// A created container that got a stop signal is not started any more.
#[test]
fn what_is_to_end_is_not_started() {
    let mut driver = Driver::new("app=main");
    driver.create("app", |_| {});
    driver.signal("app", Signal::TERM);
    driver.ask(Request::Start(Target::init("app".into())));
    assert_eq!(driver.refusals, ["cannot start container app: it is being stopped"]);
}

/// A pod in which nothing is due needs no clock: the shim sleeps.
#[test]
fn a_pod_in_which_nothing_is_due_needs_no_clock() {
    let mut driver = Driver::with_keys("s1=sidecar, app=main", &[("podshim.io/restart-policy", "Never")]);
    driver.run("s1", |_| {});
    driver.run("app", |_| {});
    assert_eq!(driver.pod.next_deadline(), None);
    exits(&mut driver, "app", 0);
    assert!(driver.pod.is_stopping() && driver.pod.next_deadline().is_some());
    exits(&mut driver, "s1", 0);
    assert_eq!(driver.pod.next_deadline(), None);
}

/// J11: the wait for another round is one of a complete pod only: nothing wakes the shim before that.
#[test]
fn j11_a_pod_that_is_not_complete_waits_for_no_round() {
    let mut driver = Driver::with_keys("s1=sidecar, app=main", &[("podshim.io/restart-policy", "OnFailure")]);
    driver.run("s1", |_| {});
    driver.run("app", |_| {});
    driver.signal("s1", Signal::TERM);
    driver.signal("app", Signal::TERM);
    assert!(driver.pod.is_stopping());
    exits(&mut driver, "app", 1);
    exits(&mut driver, "s1", 0);
    driver.tick_at(400_000);
    for name in ["app", "s1"] {
        delete(&mut driver, name);
    }
    driver.run("s1", |_| {});
    driver.create("app", |_| {});
    assert_eq!(driver.pod.next_deadline(), None);
}

/// S13: the shim's log has the warning with both names.
#[test]
fn s13_a_start_that_is_ordered_above_is_logged() {
    let marks = [("kruise.io/sidecarset-hash", r#"{"logs":{"sidecarList":["tail"]}}"#)];
    let node = pod_spec::Node::parse("read = [\"kruise\"]").expect("a node's file");
    let plan = node.parse_pod(marks).expect("marks").plan;
    let mut driver = Driver::new("app=main");
    driver.run("pause", |spec| {
        (spec.kind, spec.plan) = (TaskKind::Sandbox, plan);
    });
    let behind_the_barrier = |driver: &mut Driver, name| {
        driver.run(name, |spec| (spec.start_barrier, spec.plan) = (StartBarrier::Open, None));
    };
    behind_the_barrier(&mut driver, "app");
    assert_eq!(driver.warnings.len(), 1, "at its first start");
    // S6: again, it would not be held.
    exits(&mut driver, "app", 1);
    delete(&mut driver, "app");
    behind_the_barrier(&mut driver, "app");
    behind_the_barrier(&mut driver, "tail");
    assert_eq!(
        driver.warnings,
        [
            "main \"app\" is not held for sidecar \"tail\": OpenKruise's start barrier orders its start, and may itself wait \
             for what podshim would hold"
        ]
    );
    assert_eq!(status(&driver, "app"), Some(Status::Running));

    // With a plan of the pod's own a barrier changes nothing.
    let mut driver = Driver::new("tail=sidecar, app=main");
    driver.run("app", |spec| spec.start_barrier = StartBarrier::Open);
    assert!(driver.pod.hold_reason(&"app".into()).is_some() && driver.warnings.is_empty());
}
