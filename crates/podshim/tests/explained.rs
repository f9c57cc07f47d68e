//! Compares the answers of `podshim plan` for random plans with the simulator, which runs the code that decides: which
//! containers start when one of them is missing, and that a signal comes when all that it waits for has ended.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command as Process;
use std::time::Duration;

use pod_lifecycle::Target;
use pod_spec::{Gate, Member, Others, Plan, Role};
use serde_json::{Value, json};
use testkit::{Command, Detail, NewContainer, PodCaller, Program, Scenario, Simulator, random_scenario};

/// So many plans take some seconds; a tenth of them have `*=main`.
const SEEDS: std::ops::Range<u64> = 0..500;
/// Manifests in one call.
const AT_ONCE: usize = 100;
/// Annotations with which exits or time change more than the order: this test leaves them out.
const NOT_ORDER: [&str; 4] = ["restart-policy", "gate-timeout", "restart", "fatal"];
/// Longer than any random pod takes to start.
const STARTED: Duration = Duration::from_secs(60);
/// The default of terminationGracePeriodSeconds.
const KUBELET_GRACE: Duration = Duration::from_secs(30);

/// A random pod and the command's answer.
struct Pod {
    seed: u64,
    annotations: Vec<(String, String)>,
    plan: Plan,
    names: Vec<String>,
    explanation: Value,
}

/// What one container lacks for ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Missing {
    /// No caller creates it.
    Container,
    /// Its program is not exec'd.
    Program,
    /// Its program runs, and neither gets ready nor ends.
    Readiness,
}

#[test]
fn s2_s3_u10_what_starts_is_what_is_shown_to_wait_for_nothing_missing() {
    let mut unnamed = 0;
    for pod in pods() {
        unnamed += usize::from(pod.plan.others == Others::Mains);
        let all: BTreeSet<String> =
            pod.names.iter().filter(|name| pod.part(name)["standby_of"].is_null()).cloned().collect();
        assert_eq!(pod.started(None), all, "{pod}");
        for name in &pod.names {
            for missing in [Missing::Container, Missing::Program, Missing::Readiness] {
                let expected = pod.names.iter().filter(|one| pod.starts(one, name, missing)).cloned();
                let expected: BTreeSet<String> = expected.collect();
                assert_eq!(
                    pod.started(Some((name, missing))),
                    expected,
                    "without {missing:?} of {name}: {pod}"
                );
            }
        }
    }
    assert!(unnamed > 20, "only {unnamed} plans with *=main");
}

#[test]
fn t1_t6_t13_signals_come_when_what_they_are_shown_to_wait_for_is_gone() {
    for pod in pods() {
        let (begin, trace) = pod.stopped(|index| format!("term=0@{}ms", 100 + index * 370 % 1100));
        let budget = begin + milliseconds(&pod.explanation["stop"]["budget_ms"]);
        for name in pod.names.iter().filter(|name| pod.ends_in_a_stop(name)) {
            let part = pod.part(name);
            let others = part["stops_after"].as_array().expect("a list").iter();
            let gone = others.map(|other| trace.end(other.as_str().expect("a name")));
            let turn = gone.fold(begin, Duration::max).min(budget);
            // A container that ended by itself before the stop gets no signal.
            if trace.end(name) > begin {
                assert_eq!(trace.signal(name, begin), turn, "the signal of {name}: {pod}\n{trace:#?}");
            }
        }
    }
}

#[test]
fn t6_t8_nothing_takes_longer_than_is_shown() {
    for pod in pods() {
        let (begin, trace) = pod.stopped(|_| "ignore-term".to_owned());
        for name in pod.names.iter().filter(|name| pod.ends_in_a_stop(name)) {
            let part = pod.part(name);
            if trace.end(name) > begin {
                let signal = begin + milliseconds(&part["signal_within_ms"]);
                let gone = begin + milliseconds(&part["gone_within_ms"]);
                assert!(trace.signal(name, begin) <= signal, "the signal of {name}: {pod}\n{trace:#?}");
                assert!(trace.end(name) <= gone, "the end of {name}: {pod}\n{trace:#?}");
            }
        }
    }
}

/// In a long list each container waits for all before it: the command must still end soon.
#[test]
fn s2_the_longest_plan_is_explained_at_once() {
    let sidecars: Vec<String> = (0..63).map(|index| format!("c{index}=sidecar, ")).collect();
    let explanation = podshim_plan(&format!("podshim.io/plan: \"{}*=main\"\n", sidecars.concat()));
    let containers = explanation["annotations"]["containers"].as_array().expect("containers");
    assert_eq!((containers.len(), &containers[63]["name"]), (64, &json!("*")));
    assert_eq!((&containers[63]["start_step"], &containers[0]["stop_step"]), (&json!(64), &json!(64)));
}

impl Pod {
    /// The command's answer about a container.
    fn part(&self, name: &str) -> &Value {
        let parts = self.explanation["containers"].as_array().expect("containers");
        parts.iter().find(|part| part["name"] == *name).unwrap_or_else(|| panic!("nothing of {name}: {self}"))
    }

    fn member(&self, name: &str) -> Member {
        let named = self.plan.member(name).map(|(_, member)| member.clone());
        named.unwrap_or_else(|| Member::new(name, Role::Main, usize::MAX))
    }

    /// Whether a container starts according to the command while the container `of` lacks something.
    fn starts(&self, name: &str, of: &str, missing: Missing) -> bool {
        let part = self.part(name);
        if (name == of && missing == Missing::Container) || !part["standby_of"].is_null() {
            return false;
        }
        part["waits_for"].as_array().expect("a list").iter().all(|wait| {
            let earlier = wait["container"].as_str().expect("a name");
            let gate = self.member(earlier).gate;
            let comes = match (wait["until"].as_str().expect("a word"), missing) {
                _ if earlier != of => true,
                (_, Missing::Container) | ("done", _) => false,
                (_, Missing::Program) => gate == Gate::Skip,
                ("started", Missing::Readiness) => true,
                (_, Missing::Readiness) => !matches!(gate, Gate::Probe { .. }),
            };
            comes && self.starts(earlier, of, missing)
        })
    }

    /// Inits have ended before the stop, and a standby has no turn in it.
    fn ends_in_a_stop(&self, name: &str) -> bool {
        self.member(name).role != Role::Init && self.part(name)["standby_of"].is_null()
    }

    /// The beginning of a scenario: the pod, its programs, and the creation and start of its containers.
    fn start(&self, without: Option<(&str, Missing)>, on_stop: impl Fn(usize) -> String) -> Vec<Command> {
        let (caller, detail) = (PodCaller::Cri, Detail::Usual);
        let mut commands = vec![Command::Pod { caller, detail, annotations: self.annotations.clone() }];
        for (index, name) in self.names.iter().enumerate() {
            let awaited_end = format!("{name}=done");
            let ends = self.annotations.iter().any(|(_, value)| value.contains(&awaited_end));
            let ends = ends
                || self.plan.member(name).is_some_and(|(_, member)| {
                    member.alias.as_ref().is_some_and(|alias| {
                        self.annotations.iter().any(|(_, value)| value.contains(&format!("{alias}=done")))
                    })
                });
            let run = match without.filter(|(of, _)| of == name) {
                Some((_, Missing::Program)) => "exec=3600s",
                Some((_, _)) => "never-ready",
                None if self.member(name).role == Role::Init => "exit=0@50ms",
                None if ends => "exit=0@3s",
                None => "",
            };
            let program = Program::parse(&format!("{run} {}", on_stop(index))).expect("a program");
            commands.push(Command::Program(name.clone(), program));
        }
        // In reverse order: a container that waits is created before those that it waits for.
        for name in self.names.iter().rev().filter(|name| without != Some((name, Missing::Container))) {
            // T19: a kubelet's figure is what `podshim plan` counts with.
            let new = NewContainer { kubelet_grace: Some(KUBELET_GRACE), ..NewContainer::named(name) };
            commands.push(Command::Create(new));
            commands.push(Command::Start(Target::init(name.as_str().into())));
        }
        commands.push(Command::Advance(STARTED));
        commands
    }

    /// The containers whose program has started.
    fn started(&self, without: Option<(&str, Missing)>) -> BTreeSet<String> {
        let trace = self.run(self.start(without, |_| String::new()));
        trace.0.iter().filter(|(_, _, what)| what == "start").map(|(_, name, _)| name.clone()).collect()
    }

    /// A stop as the kubelet makes it, of all containers at the same moment: when it began, and what happened.
    fn stopped(&self, on_stop: impl Fn(usize) -> String) -> (Duration, Trace) {
        let mut commands = self.start(None, on_stop);
        let stop = |name: &String| Command::StopContainer(name.as_str().into(), KUBELET_GRACE);
        commands.extend(self.names.iter().map(stop));
        commands.push(Command::Advance(Duration::from_secs(120)));
        (STARTED, self.run(commands))
    }

    fn run(&self, commands: Vec<Command>) -> Trace {
        let mut simulator = Simulator::default();
        simulator.run(&Scenario(commands)).unwrap_or_else(|error| panic!("{error}: {self}"));
        Trace::of(&simulator.take_trace())
    }
}

impl std::fmt::Display for Pod {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "seed {} {:#?}\n{:#}", self.seed, self.annotations, self.explanation)
    }
}

/// Time, container and event of each line of the trace, without hooks.
#[derive(Debug)]
struct Trace(Vec<(Duration, String, String)>);

impl Trace {
    fn of(lines: &[String]) -> Self {
        let read = |line: &String| {
            let (at, rest) = line.split_once(' ')?;
            let (name, what) = rest.split_once('.').filter(|(name, _)| !name.contains([' ', '/']))?;
            Some((Duration::from_secs_f64(at.parse().ok()?), name.to_owned(), what.to_owned()))
        };
        Self(lines.iter().filter_map(read).collect())
    }

    fn end(&self, name: &str) -> Duration {
        let mut ends = self.0.iter().filter(|(_, own, what)| own == name && what.starts_with("exit("));
        ends.next_back().unwrap_or_else(|| panic!("{name} does not end: {self:#?}")).0
    }

    /// The time of the first signal at or after `since`.
    fn signal(&self, name: &str, since: Duration) -> Duration {
        let is_signal = |what: &str| what != "start" && !what.starts_with("exit(");
        let mut signals =
            self.0.iter().filter(|(at, own, what)| own == name && *at >= since && is_signal(what));
        signals.next().unwrap_or_else(|| panic!("{name} has no signal: {self:#?}")).0
    }
}

fn milliseconds(value: &Value) -> Duration {
    Duration::from_millis(value.as_u64().expect("milliseconds"))
}

/// Random pods with a plan, and the command's answers.
fn pods() -> Vec<Pod> {
    let mut pods: Vec<Pod> = SEEDS.filter_map(pod).collect();
    for pods in pods.chunks_mut(AT_ONCE) {
        let manifests: Vec<String> = pods.iter().map(manifest).collect();
        let mut explanation = podshim_plan(&manifests.join("---\n"));
        for pod in pods {
            let title = format!("Pod seed-{}", pod.seed);
            pod.explanation = explanation.remove(&title).unwrap_or_else(|| panic!("nothing of {pod}"));
        }
    }
    pods
}

fn pod(seed: u64) -> Option<Pod> {
    let Some(Command::Pod { annotations, .. }) = random_scenario(seed).0.into_iter().next() else {
        return None;
    };
    let is_order =
        |key: &str| NOT_ORDER.iter().all(|word| key != *word && !key.starts_with(&format!("{word}.")));
    let annotations: Vec<_> = annotations.into_iter().filter(|(key, _)| is_order(key)).collect();
    let keyed: Vec<_> =
        annotations.iter().map(|(key, value)| (format!("{}{key}", pod_spec::PREFIX), value)).collect();
    let plan = pod_spec::parse(keyed.iter().map(|(key, value)| (key.as_str(), value.as_str())))
        .expect("valid")
        .plan?;
    let mut names: Vec<String> = plan.members.iter().map(|member| member.name.clone()).collect();
    if plan.others == Others::Mains {
        names.extend(["any0", "any1"].map(str::to_owned));
    }
    Some(Pod { seed, annotations, plan, names, explanation: Value::Null })
}

/// The pod's manifest, as JSON: JSON is YAML.
fn manifest(pod: &Pod) -> String {
    let annotations: BTreeMap<String, &String> =
        pod.annotations.iter().map(|(key, value)| (format!("{}{key}", pod_spec::PREFIX), value)).collect();
    let containers: Vec<Value> = pod.names.iter().map(|name| json!({ "name": name })).collect();
    let pod = json!({
        "kind": "Pod",
        "metadata": { "name": format!("seed-{}", pod.seed), "annotations": annotations },
        "spec": { "containers": containers },
    });
    format!("{pod:#}\n")
}

#[allow(clippy::disallowed_methods, reason = "a test runs the command as its users do")]
fn podshim_plan(manifests: &str) -> BTreeMap<String, Value> {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("pods.yaml");
    fs::write(&file, manifests).expect("a file");
    let output = Process::new(env!("CARGO_BIN_EXE_podshim")).args(["plan", "--json"]).arg(&file).output();
    let output = output.expect("podshim runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let pods = report["pods"].as_array().expect("pods").iter();
    pods.map(|pod| (pod["pod"].as_str().expect("a title").to_owned(), pod.clone())).collect()
}
