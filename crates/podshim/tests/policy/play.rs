//! A pod after the policy, played: the simulator runs it on the pod core under a kubelet that knows native sidecars. As no released
//! one does, it does not say which of its containers are inits.

use serde_json::Value;
use testkit::{Scenario, Simulator};

use crate::support::{annotations, names, native_sidecars};

/// Runs the pod to its end: a job's mains end by themselves, another pod is stopped. The lines have time, container and event.
pub fn play(pod: &Value) -> Vec<String> {
    let scenario = scenario(pod);
    let mut simulator = Simulator::default();
    simulator.run(&Scenario::parse(scenario.lines()).expect("a scenario")).expect("no promise is broken");
    simulator.take_trace()
}

fn scenario(pod: &Value) -> String {
    let mut text = "pod\n".to_owned();
    for (key, value) in annotations(pod) {
        if let Some(key) = key.strip_prefix(pod_spec::PREFIX) {
            text += &format!("  {key}: {value}\n");
        }
    }
    let (natives, inits, mains) =
        (native_sidecars(pod), names(pod, "initContainers"), names(pod, "containers"));
    let ends_by_itself = pod["spec"]["restartPolicy"] != "Always";
    for name in &inits {
        let program = if natives.contains(name) { "term=7@1s" } else { "exit=0@1s" };
        text += &format!("program {name}: {program}\n");
    }
    for name in &mains {
        text += &format!("program {name}: {}\n", if ends_by_itself { "exit=0@5s" } else { "term=0@3s" });
    }
    // One init container after another; what follows an init is created when that has ended.
    for name in &inits {
        text += &format!("create {name}\nstart {name}\nadvance 2s\n");
    }
    for name in &mains {
        text += &format!("create {name}\nstart {name}\n");
    }
    text += "advance 60s\n";
    if !ends_by_itself {
        natives.iter().chain(&mains).for_each(|name| text += &format!("stop-container {name} 60s\n"));
        text += "idle\n";
    }
    text
}

/// Nothing is held, in whatever order the names are; and the sidecars stop one after another, behind the mains.
pub fn check_trace(pod: &Value, trace: &[String]) {
    let shown = trace.join("\n");
    assert!(!trace.iter().any(|line| line.contains("held:")), "{shown}");
    let time_of = |what: String| {
        let line = trace.iter().find(|line| line.split_once(' ').is_some_and(|(_, rest)| rest == what));
        let time = line.unwrap_or_else(|| panic!("no {what:?} in\n{shown}")).split(' ').next();
        time.and_then(|time| time.parse::<f64>().ok()).expect("a time")
    };
    let (natives, mains) = (native_sidecars(pod), names(pod, "containers"));
    for (place, name) in names(pod, "initContainers").iter().enumerate() {
        let at = f64::from(u32::try_from(place).expect("few")) * 2.0;
        assert!(
            (time_of(format!("{name}.start")) - at).abs() < 0.01,
            "{name} starts when it is created:\n{shown}"
        );
    }
    let mut last = mains.iter().map(|name| time_of(format!("{name}.exit(0)"))).fold(0.0, f64::max);
    for native in natives.iter().rev() {
        assert!(time_of(format!("{native}.TERM")) >= last, "{native} stops too early:\n{shown}");
        last = time_of(format!("{native}.exit(7)"));
    }
}
