//! The corpus of `golden/translate`, played: the simulator runs each translated pod on the pod core, and the trace must
//! have the order that KEP-753 demands of the original. Each trace is kept beside its manifest (`*.trace`); with
//! `PODSHIM_REWRITE_GOLDEN` set the test rewrites them.

use std::fs;
use std::path::{Path, PathBuf};

use manifests::manifest::{self, List, Template};
use manifests::source::Source;
use manifests::translate::{Target, translate};
use manifests::yaml::{self, Document};
use pod_spec::{Gate, Role};
use podshim::source::read as read_file;
use testkit::{Scenario, Simulator};

const PLAIN: Target<'_> = Target { runtime_class: "podshim", sidecar_sets: &[] };

/// Seconds that a program takes if it has something to do.
const READY_AFTER: f64 = 2.0;

fn corpus() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/translate");
    let entries = fs::read_dir(folder).expect("the corpus").map(|entry| entry.expect("an entry").path());
    let mut paths: Vec<PathBuf> = entries
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml" || extension == "json"))
        .collect();
    paths.sort();
    paths
}

/// A container of the original, in the order in which KEP-753 starts them.
struct Entry {
    name: String,
    list: List,
    has_startup_probe: bool,
}

fn entries(template: &Template<'_>) -> Vec<Entry> {
    let containers = template.containers();
    containers
        .iter()
        .map(|container| Entry {
            name: container.name.to_owned(),
            list: container.list,
            has_startup_probe: container.node.get("startupProbe").is_some(),
        })
        .collect()
}

/// The pod as a scenario: a kubelet that knows no sidecars creates and starts all regular containers one after another,
/// and stops them all at the same moment.
fn scenario(original: &[Entry], translated: &Template<'_>) -> String {
    let mut text = "pod\n".to_owned();
    for (key, value) in manifest::pairs(translated.annotations().expect("annotations")) {
        if let Some(key) = key.strip_prefix(pod_spec::PREFIX) {
            text += &format!("  {key}: {value}\n");
        }
    }
    let ends_by_itself = translated.restart_policy() != "Always";
    let containers = translated.containers();
    let regular: Vec<&str> =
        containers.iter().filter(|it| it.list == List::Regular).map(|it| it.name).collect();
    for name in &regular {
        let entry = original.iter().find(|entry| entry.name == **name).expect("no container is new");
        let program = match entry.list {
            List::Init => "exit=0@1s".to_owned(),
            List::NativeSidecar if entry.has_startup_probe => format!("term=7@1s ready={READY_AFTER}s"),
            List::NativeSidecar => "term=7@1s".to_owned(),
            List::Regular if ends_by_itself => "exit=0@5s".to_owned(),
            List::Regular => "term=0@3s".to_owned(),
        };
        text += &format!("program {name}: {program}\n");
    }
    text += &format!("up {}\nadvance 120s\n", regular.join(" "));
    if !ends_by_itself {
        regular.iter().for_each(|name| text += &format!("stop-container {name} 60s\n"));
        text += "idle\n";
    }
    text
}

fn play(scenario: &str) -> Vec<String> {
    let mut simulator = Simulator::default();
    let scenario = Scenario::parse(scenario.lines()).expect("a scenario");
    simulator.run(&scenario).expect("no promise is broken");
    simulator.take_trace()
}

/// The time of the first line with `what`.
fn time_of(trace: &[String], what: &str) -> Option<f64> {
    let line = trace.iter().find(|line| line.split_once(' ').is_some_and(|(_, rest)| rest == what))?;
    line.split_once(' ')?.0.parse().ok()
}

/// Asserts KEP-753's order of the original in the trace of its translation.
fn check_order(original: &[Entry], moved: usize, trace: &[String]) {
    let shown = trace.join("\n");
    let at = |what: String| time_of(trace, &what).unwrap_or_else(|| panic!("no {what:?} in\n{shown}"));
    let index = |what: String| trace.iter().position(|line| line.ends_with(&format!(" {what}")));
    let ordered = &original[original.len() - moved..];
    for (place, entry) in ordered.iter().enumerate() {
        let start = at(format!("{}.start", entry.name));
        for later in ordered[place + 1..].iter().filter(|_| entry.list != List::Regular) {
            let next = at(format!("{}.start", later.name));
            let (first, second) =
                (index(format!("{}.start", entry.name)), index(format!("{}.start", later.name)));
            assert!(first < second, "{} starts before {} in\n{shown}", entry.name, later.name);
            if entry.list == List::Init {
                assert!(
                    at(format!("{}.exit(0)", entry.name)) <= next,
                    "{} ends first in\n{shown}",
                    entry.name
                );
            }
            if entry.list == List::NativeSidecar && entry.has_startup_probe {
                assert!(next >= start + READY_AFTER, "{} is ready first in\n{shown}", entry.name);
            }
        }
    }
    // Sidecars outlive the mains, and stop in reverse order, one after another.
    let sidecars = ordered.iter().rev().filter(|entry| entry.list == List::NativeSidecar);
    let mut last = ordered
        .iter()
        .filter(|entry| entry.list == List::Regular)
        .map(|entry| at(format!("{}.exit(0)", entry.name)))
        .fold(0.0, f64::max);
    for sidecar in sidecars {
        assert!(at(format!("{}.TERM", sidecar.name)) >= last, "{} stops too early in\n{shown}", sidecar.name);
        last = at(format!("{}.exit(7)", sidecar.name));
    }
}

fn pods(documents: &[Document]) -> Vec<Template<'_>> {
    documents.iter().flat_map(manifest::templates).collect()
}

#[test]
fn s2_t1_translated_pods_keep_the_order_of_kep_753() {
    let rewrite = std::env::var_os("PODSHIM_REWRITE_GOLDEN").is_some();
    let mut played = 0;
    for path in corpus() {
        let source = read_file(path.to_str().expect("UTF-8")).expect("a manifest");
        let translated = translate(&source, PLAIN).expect("YAML");
        let (before, after) = (
            yaml::documents(&source.text).expect("YAML"),
            yaml::documents(&translated.text).expect("what is written is YAML"),
        );
        let mut traces = String::new();
        for (before, after) in pods(&before).iter().zip(pods(&after)) {
            let original = entries(before);
            let natives = original.iter().filter(|entry| entry.list == List::NativeSidecar).count();
            let left = after.containers().iter().filter(|it| it.list == List::NativeSidecar).count();
            if natives == 0 || left > 0 {
                // Not translated: nothing to do, or refused. The golden files of the output say which.
                continue;
            }
            let moved = after.containers().iter().filter(|it| it.list == List::Regular).count();
            let trace = play(&scenario(&original, &after));
            check_order(&original, moved, &trace);
            traces += &format!("# {}\n{}\n", after.title(), trace.join("\n"));
            played += 1;
        }
        let golden = path.with_extension("trace");
        if rewrite && !traces.is_empty() {
            fs::write(&golden, &traces).expect("a golden file");
        }
        assert_eq!(fs::read_to_string(&golden).unwrap_or_default(), traces, "{}", golden.display());
    }
    assert!(played >= 20, "only {played} pods were played");
}

/// A second translation changes nothing.
#[test]
fn what_is_translated_stays_as_it_is() {
    for path in corpus() {
        let source = read_file(path.to_str().expect("UTF-8")).expect("a manifest");
        let once = translate(&source, PLAIN).expect("YAML").text;
        let again = translate(&Source { name: source.name, text: once.clone() }, PLAIN).expect("YAML");
        assert_eq!((again.pods, again.text), (0, once), "{}", path.display());
    }
}

/// The pods of `golden/sidecarset`, with the additions of SidecarSets, played like those above.
#[test]
fn t1_v1_injected_sidecars_are_sidecars() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/sidecarset");
    let read = |name: &str| read_file(folder.join(name).to_str().expect("UTF-8")).expect("a file");
    let mut seen = Vec::new();
    for (set, name) in [("logs", "web.yaml"), ("mesh", "job.yaml"), ("native", "native.yaml")] {
        let sets = manifests::sidecarset::read(&read(&format!("{set}.set.yaml")), &mut Vec::new());
        let sets = sets.expect("SidecarSets");
        let target = Target { runtime_class: "podshim", sidecar_sets: &sets };
        let text = translate(&read(name), target).expect("YAML").text;
        let documents = yaml::documents(&text).expect("YAML");
        for pod in pods(&documents) {
            let Some(annotations) = pod.annotations() else { continue };
            let Ok(parsed) = pod_spec::parse(manifest::pairs(annotations)) else { continue };
            let Some(plan) = parsed.plan else { continue };
            let trace = play(&scenario_of_plan(&pod, &plan));
            check_sidecars(&plan, &trace);
            seen.push(pod.title());
        }
    }
    assert_eq!(
        seen,
        ["Deployment shop/web", "Pod api", "Job import/import", "Pod elsewhere/elsewhere", "Pod web"]
    );
}

fn scenario_of_plan(pod: &Template<'_>, plan: &pod_spec::Plan) -> String {
    let mut text = "pod\n".to_owned();
    for (key, value) in manifest::pairs(pod.annotations().expect("annotations")) {
        if let Some(key) = key.strip_prefix(pod_spec::PREFIX) {
            text += &format!("  {key}: {value}\n");
        }
    }
    let names: Vec<&str> =
        pod.containers().iter().filter(|it| it.list == List::Regular).map(|it| it.name).collect();
    for name in &names {
        let member =
            plan.members.iter().find(|member| member.name == *name).expect("every container has a role");
        let program = match member.role {
            Role::Init => "exit=0@1s".to_owned(),
            Role::Sidecar => format!("term=7@1s ready={READY_AFTER}s"),
            Role::Main => "term=0@3s".to_owned(),
        };
        text += &format!("program {name}: {program}\n");
    }
    text += &format!("up {}\nadvance 30s\n", names.join(" "));
    names.iter().for_each(|name| text += &format!("stop-container {name} 60s\n"));
    text + "idle\n"
}

fn check_sidecars(plan: &pod_spec::Plan, trace: &[String]) {
    let shown = trace.join("\n");
    let time = |what: String| time_of(trace, &what);
    let at = |what: String| time(what.clone()).unwrap_or_else(|| panic!("no {what:?} in\n{shown}"));
    for main in plan.members.iter().filter(|member| member.role == Role::Main) {
        let (start, end) = (at(format!("{}.start", main.name)), at(format!("{}.exit(0)", main.name)));
        for (index, sidecar) in plan.members.iter().enumerate().filter(|(_, it)| it.role == Role::Sidecar) {
            let name = &sidecar.name;
            if sidecar.is_second_of_pair(index) {
                assert_eq!(time(format!("{name}.start")), None, "V1: a standby is held, in\n{shown}");
                continue;
            }
            let own = at(format!("{name}.start"));
            if sidecar.after.is_some() {
                assert!(own >= start, "{name} comes after the mains in\n{shown}");
            } else {
                let ready = if sidecar.gate == Gate::Running { own } else { own + READY_AFTER };
                assert!(start >= ready, "{name} is ready before the mains start in\n{shown}");
            }
            assert!(at(format!("{name}.TERM")) >= end, "T1: {name} outlives the mains in\n{shown}");
        }
    }
}
