//! A machine that is late: a timer fires long after it was due (T16, R5).

mod driver;

use std::time::Duration;

use pod_lifecycle::{Caller, Event, Exit, KubeletHook, Operation, Outcome, Status, Target, WallTime};
use pod_spec::Signal;

use driver::Driver;

/// A running pod of a kubelet, whose sidecar has just got a stop signal.
fn stopped() -> Driver {
    let mut driver = Driver::new("s1=sidecar, app=main");
    for name in ["s1", "app"] {
        driver.run(name, |spec| {
            spec.caller = Caller::Cri;
            spec.kubelet = Some(KubeletHook::None);
        });
    }
    driver.signal("s1", Signal::TERM);
    driver
}

/// T16: if the shim's own timer is late, other stops may be late too: the window is doubled, once.
#[test]
fn t16_a_late_machine_has_twice_the_time() {
    let mut driver = stopped();
    driver.tick_at(2_600);
    assert_eq!(driver.signalled(), [""; 0], "it was judged although the timer was 600 ms late");
    driver.tick_at(4_599);
    assert_eq!(driver.signalled(), [""; 0]);
    // However late the timer is, the window is doubled once.
    driver.tick_at(9_000);
    assert_eq!(driver.signalled(), ["s1"]);
}

#[test]
fn t16_a_timer_in_time_decides_at_once() {
    let mut driver = stopped();
    driver.tick_at(2_499);
    assert_eq!(driver.signalled(), ["s1"]);
}

/// A stop within the second window is evidence of a stop of the pod: the main ends first.
#[test]
fn t16_t12_a_stop_in_the_second_window_is_one_of_the_pod() {
    let mut driver = stopped();
    driver.tick_at(2_600);
    driver.signal("app", Signal::TERM);
    assert_eq!(driver.signalled(), ["app"]);
    driver.tick_at(9_000);
    assert_eq!(driver.signalled(), ["app"]);
}

/// R5, T6: a sidecar's new process is there after the budget has ended, and before the shim's timer fires: its turn has
/// come, so its program does not run.
#[test]
fn r5_t6_a_recreation_that_ends_after_the_budget() {
    let mut driver = Driver::new("s1=sidecar, app=main");
    driver.run("s1", |_| {});
    driver.run("app", |_| {});
    driver.endless = |operation| matches!(operation, Operation::Recreate);
    let target = Target::init("s1".into());
    driver.feed(Event::Exited { target: target.clone(), exit: Exit { code: 1, ..Exit::default() } });
    driver.feed(Event::StopPod { grace: Some(Duration::from_secs(4)) });
    assert_eq!(driver.signalled(), ["app"]);
    driver.sleep_until(4_500);
    driver.endless = |_| false;
    let (op, outcome) = (driver.last_op, Outcome::Process { pid: 1001 });
    driver.feed(Event::Done { op, outcome, at: WallTime::default() });
    // The SIGTERM of the last call ends no runtime's init for certain.
    assert_eq!(driver.killed(), ["s1"]);
    driver.feed(Event::Exited { target: target.clone(), exit: Exit { code: 137, ..Exit::default() } });
    let view = driver.pod.view(&target).unwrap();
    assert_eq!(view.status, Status::Stopped);
    // J2.
    assert_eq!(view.exit.map(|exit| exit.code), Some(0));
}
