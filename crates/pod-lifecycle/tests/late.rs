//! A machine that is late: a timer fires long after it was due (T16).

mod driver;

use pod_lifecycle::{Caller, KubeletHook};
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
