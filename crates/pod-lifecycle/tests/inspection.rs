//! What operators see of a pod: how far its containers and gates are, and how it ended, which its mains and its restart policy
//! decide.

mod driver;

use pod_lifecycle::{
    Check, Event, Exit, GateProgress, InspectedState, MissingEnd, Operation, PodOutcome, PodTime, Request,
    Target,
};

use driver::Driver;

fn exits(driver: &mut Driver, name: &str, code: u32) {
    driver.feed(Event::Exited { target: Target::init(name.into()), exit: Exit { code, ..Exit::default() } });
}

fn outcome(driver: &Driver) -> Option<PodOutcome> {
    driver.pod.inspect(PodTime::ZERO).outcome
}

fn job(policy: &'static str) -> Driver {
    Driver::with_keys("s1=sidecar, a=main, b=main", &[("podshim.io/restart-policy", policy)])
}

fn run(driver: &mut Driver, names: &[&str]) {
    for name in names {
        driver.run(name, |_| {});
    }
}

#[test]
fn j1_a_job_has_succeeded_when_all_mains_have() {
    let mut driver = job("Never");
    run(&mut driver, &["s1", "a", "b"]);
    exits(&mut driver, "a", 0);
    assert_eq!(outcome(&driver), None, "b still runs");
    exits(&mut driver, "b", 0);
    assert_eq!(outcome(&driver), Some(PodOutcome::Succeeded));
}

#[test]
fn j1_one_failed_main_fails_a_job() {
    let mut driver = job("Never");
    run(&mut driver, &["s1", "a", "b"]);
    exits(&mut driver, "a", 3);
    exits(&mut driver, "b", 0);
    assert_eq!(outcome(&driver), Some(PodOutcome::Failed));
}

#[test]
fn j5_a_failure_under_on_failure_is_no_outcome() {
    let mut driver = job("OnFailure");
    run(&mut driver, &["s1", "a", "b"]);
    exits(&mut driver, "a", 3);
    exits(&mut driver, "b", 0);
    assert_eq!(outcome(&driver), None);
}

#[test]
fn i2_a_failed_init_fails_the_pod_under_never_only() {
    for (policy, expected) in [("Never", Some(PodOutcome::Failed)), ("OnFailure", None), ("Always", None)] {
        let mut driver = Driver::with_keys("i=init, a=main", &[("podshim.io/restart-policy", policy)]);
        run(&mut driver, &["i", "a"]);
        exits(&mut driver, "i", 1);
        assert_eq!(outcome(&driver), expected, "{policy}");
    }
}

/// S2: what each waits for when it starts, also one that no caller has created; that every main is gone before a sidecar stops is
/// no wait.
#[test]
fn s2_an_operator_sees_what_each_container_waits_for() {
    let keys = [("podshim.io/after.b", "s=started"), ("podshim.io/after.late", "a=ready")];
    let mut driver = Driver::with_keys("i=init, s=sidecar, late=sidecar, a=main, b=main", &keys);
    run(&mut driver, &["i"]);
    let inspection = driver.pod.inspect(PodTime::ZERO);
    let waits = inspection.containers.iter().map(|container| {
        let after = container.after.iter().map(|(name, until)| format!("{name}={}", until.word()));
        format!("{}: {}", container.name, after.collect::<Vec<_>>().join(", "))
    });
    let waits: Vec<_> = waits.filter(|wait| !wait.starts_with("pause")).collect();
    assert_eq!(waits, ["i: ", "s: i=done", "late: a=ready", "a: i=done, s=ready", "b: s=started"]);
}

fn missing(driver: &Driver) -> Vec<String> {
    driver.pod.missing().map(|missing| missing.members).unwrap_or_default()
}

#[test]
fn u10_a_main_that_no_caller_creates_is_missing() {
    let mut driver = job("Never");
    run(&mut driver, &["s1", "a"]);
    assert_eq!(missing(&driver), ["main \"b\""]);
    assert_eq!(driver.pod.missing().unwrap().ends_without, MissingEnd::Never);
    exits(&mut driver, "a", 0);
    assert_eq!(missing(&driver), ["main \"b\""], "the job does not end without b");
    run(&mut driver, &["b"]);
    assert!(driver.pod.missing().is_none());
}

#[test]
fn u10_an_init_or_a_sidecar_that_no_caller_creates_is_missing() {
    let mut driver = Driver::with_keys(
        "i=init, s=sidecar, p|q=sidecar, a=main",
        &[("podshim.io/restart-policy", "Never")],
    );
    driver.run("a", |_| {});
    assert_eq!(missing(&driver), ["init \"i\"", "sidecar \"s\"", "sidecar \"p\""]);
    assert_eq!(driver.pod.missing().unwrap().ends_without, MissingEnd::AsPlanned);
    driver.run("q", |_| {});
    assert_eq!(missing(&driver), ["init \"i\"", "sidecar \"s\""], "one of a pair is enough");
    run(&mut driver, &["i", "s"]);
    assert!(driver.pod.missing().is_none());
}

fn state_of(driver: &Driver, name: &str) -> InspectedState {
    let containers = driver.pod.inspect(PodTime::ZERO).containers;
    containers.into_iter().find(|container| container.name == name).expect("a container").state
}

#[test]
fn a_paused_container_is_shown_paused() {
    let mut driver = job("Never");
    run(&mut driver, &["s1", "a"]);
    assert_eq!(state_of(&driver, "a"), InspectedState::Running);
    driver.ask(Request::Pause("a".into()));
    assert_eq!(state_of(&driver, "a"), InspectedState::Paused);
    driver.ask(Request::Resume("a".into()));
    assert_eq!(state_of(&driver, "a"), InspectedState::Running);
}

/// U2: closed until the program has been executed, then started, then open.
#[test]
fn u2_a_gate_is_shown_as_far_as_it_is() {
    let gate_after = |endless: fn(&Operation) -> bool| {
        let mut driver = Driver::with_keys("s1=sidecar, a=main", &[("podshim.io/ready.s1", "log:ready")]);
        driver.endless = endless;
        run(&mut driver, &["s1", "a"]);
        let containers = driver.pod.inspect(PodTime::ZERO).containers;
        let gate = |name| containers.iter().find(|it| it.name == name).expect("a container").gate.clone();
        assert_eq!(gate("a"), None, "nothing waits for a main");
        gate("s1").map(|(gate, progress)| (gate.to_string(), progress))
    };
    for (endless, expected) in [
        ((|it| matches!(it, Operation::Check(_))) as fn(&Operation) -> bool, GateProgress::Closed),
        (|it| matches!(it, Operation::Check(Check::Probe { .. })), GateProgress::Started),
        (|_| false, GateProgress::Open),
    ] {
        assert_eq!(gate_after(endless), Some(("log:ready".to_owned(), expected)));
    }
}

/// R9: a failure that stops the pod is its outcome only where its caller recreates nothing.
#[test]
fn r9_a_fatal_end_under_always_is_no_outcome() {
    let keys: &[_] = &[("podshim.io/restart-policy", "Always"), ("podshim.io/fatal.s1", "exit")];
    let mut driver = Driver::with_keys("s1=sidecar, a=main", keys);
    run(&mut driver, &["s1", "a"]);
    exits(&mut driver, "s1", 1);
    assert_eq!(outcome(&driver), None);
}

/// U10: what is missing does not matter any more once the pod is being stopped.
#[test]
fn u10_nothing_is_missing_in_a_stop() {
    let mut driver = job("Never");
    run(&mut driver, &["s1", "a"]);
    driver.feed(Event::StopPod { grace: None });
    assert!(driver.pod.is_stopping() && driver.pod.missing().is_none());
}
