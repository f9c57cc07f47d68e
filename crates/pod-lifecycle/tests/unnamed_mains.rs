//! `*=main` without a kubelet (S8): each container has a name of its own, and podshim forgets each once it is gone.

mod driver;

use pod_lifecycle::{Event, Exit, PodTime, Request, Target};
use pod_spec::Signal;

use driver::Driver;

fn driver() -> Driver {
    Driver::new("s1=sidecar, *=main")
}

fn run(driver: &mut Driver, name: &str) {
    driver.run(name, |_| {});
}

/// A main exits, after its caller's stop signal if there is one, and is deleted.
fn end(driver: &mut Driver, name: &str, signal: Option<Signal>) {
    if let Some(signal) = signal {
        driver.signal(name, signal);
    }
    let target = Target::init(name.into());
    driver.feed(Event::Exited { target: target.clone(), exit: Exit::default() });
    driver.ask(Request::Delete(target));
}

fn names(driver: &Driver) -> Vec<String> {
    driver.pod.inspect(PodTime::ZERO).containers.into_iter().map(|container| container.name).collect()
}

/// podshim forgets a main that ran and is gone.
#[test]
fn s8_an_unnamed_main_is_forgotten_with_its_container() {
    let mut driver = driver();
    run(&mut driver, "s1");
    run(&mut driver, "web");
    for number in 0..1000 {
        let name = format!("job-{number}");
        run(&mut driver, &name);
        assert_eq!(names(&driver), ["s1", "web", &name]);
        end(&mut driver, &name, None);
    }
    assert_eq!(names(&driver), ["s1", "web"]);
    end(&mut driver, "web", None);
    run(&mut driver, "other");
    assert_eq!(names(&driver), ["s1", "other"]);
}

/// T12: podshim remembers that a main was stopped as long as that matters, and only in the newest such main.
#[test]
fn s8_t12_one_main_that_was_stopped_is_remembered() {
    let mut driver = driver();
    run(&mut driver, "s1");
    run(&mut driver, "web");
    for number in 0..1000 {
        let name = format!("job-{number}");
        run(&mut driver, &name);
        end(&mut driver, &name, Some(Signal::TERM));
        assert!(names(&driver).len() <= 3, "{:?}", names(&driver));
    }
    assert!(!driver.pod.is_stopping());
    driver.signal("s1", Signal::TERM);
    assert!(driver.pod.is_stopping(), "a main and a sidecar were asked");
}
