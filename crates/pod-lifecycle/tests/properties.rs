//! Random pods, callers and worlds: every promise holds after every step, and a pod that is stopped ends.
//!
//! A failure prints as a scenario: paste it into a file of `tests/scenarios` to keep it.

use std::time::Duration;

use pod_lifecycle::{ContainerId, KubeletType, PidNamespace, Reach, Target};
use pod_spec::Signal;
use proptest::prelude::*;
use proptest::sample::select;
use testkit::{
    Command, Detail, NewContainer, OnStop, OperationKind, PodCaller, Program, Run, RunEnd, Scenario,
    Simulator,
};

/// So many that a run takes well under a minute in a debug build.
const CASES: u32 = 2500;
/// More than operations of a random pod can fail.
const MAX_TRIES: usize = 32;
/// Longer than any program, operation or budget of a random pod.
const LONG: Duration = Duration::from_secs(200);

fn duration() -> impl Strategy<Value = Duration> {
    select(vec![0_u64, 1, 50, 100, 400, 1000, 1500, 2000, 3000, 7000]).prop_map(Duration::from_millis)
}

fn end() -> impl Strategy<Value = RunEnd> {
    (select(vec![0_u32, 0, 1, 3, 143]), duration()).prop_map(|(code, after)| RunEnd { code, after })
}

fn run() -> impl Strategy<Value = Run> {
    let on_stop = prop_oneof![3 => end().prop_map(OnStop::Exits), 1 => Just(OnStop::Ignores)];
    let ready = prop_oneof![3 => duration().prop_map(Some), 1 => Just(None)];
    (prop::option::of(end()), on_stop, ready, duration())
        .prop_map(|(ends, on_stop, ready_after, exec_after)| Run { ends, on_stop, ready_after, exec_after })
}

fn program() -> impl Strategy<Value = Program> {
    prop::collection::vec(run(), 1..4).prop_map(Program::new)
}

/// One entry of the plan: a role and how many share it.
type Entry = (&'static str, usize);

/// Annotations, and the names of the planned containers.
fn pod() -> impl Strategy<Value = (Vec<(String, String)>, Vec<String>)> {
    let entry =
        (select(vec!["init", "sidecar", "sidecar", "standby", "main"]), select(vec![1_usize, 1, 1, 2]));
    let entries = prop::collection::vec(entry, 0..4);
    let policy = select(vec!["Always", "OnFailure", "Never"]);
    let grace = prop::option::of(select(vec!["0s", "3s", "8s"]));
    let gate_timeout = prop::option::weighted(0.2, select(vec!["2s", "5s"]));
    let gate = select(vec![
        "",
        "",
        "none",
        "tcp::80;period=1s;fail=2",
        "exec:ready;period=500ms;fail=3;ok=2;delay=1s",
        "http::80/;period=700ms;fail=2",
        "log:ready;period=300ms;fail=4;delay=400ms",
        "notify;fail=2",
        "file:/ready;period=100ms;delay=500ms",
    ]);
    let own_grace = select(vec!["", "", "1s", "3s"]);
    let hook = || select(vec!["", "", "", "exec:hook"]);
    let settings = prop::collection::vec((gate, own_grace), 8);
    let hooks = prop::collection::vec((hook(), hook()), 8);
    let codes = (
        select(vec!["masked", "real"]),
        select(vec!["obey", "obey", "order"]),
        select(vec!["own", "protect"]),
    );
    let after = (select(vec![Direction::Backwards, Direction::Forwards]), prop::collection::vec(after(), 8));
    let restarts = vec!["", "", "", "never", "visible", "on-failure", "on-failure;limit=1;base=500ms"];
    let ends = prop::collection::vec((select(restarts), select(vec!["", "", "", "failure", "exit"])), 8);
    let orders = (codes, after, ends);
    (entries, policy, grace, gate_timeout, settings, hooks, orders).prop_map(
        |(mut entries, policy, grace, gate_timeout, settings, hooks, orders)| {
            let ((codes, zero_grace, oom_score), (direction, after), ends) = orders;
            if !entries.iter().any(|(role, _)| *role == "main") {
                entries.push(("main", 1));
            }
            let (plan, sidecars, names) = write_plan(&entries);
            // The order of a standby pair is said on its first (V1).
            let seconds: Vec<_> =
                plan.split('|').skip(1).filter_map(|rest| Some(rest.split('=').next()?.to_owned())).collect();
            let inits = plan.split(", ").filter(|entry| entry.ends_with("=init")).map(str::to_owned);
            let inits: String = inits.collect();
            let roles: Vec<_> =
                entries.iter().flat_map(|(role, size)| vec![*role; size_of(role, *size)]).collect();
            let mut keys = vec![("plan".to_owned(), plan), ("restart-policy".to_owned(), policy.to_owned())];
            keys.push(("exit-codes".to_owned(), codes.to_owned()));
            keys.push(("oom-score".to_owned(), oom_score.to_owned()));
            if !sidecars.is_empty() {
                keys.push(("zero-grace".to_owned(), zero_grace.to_owned()));
            }
            keys.extend(grace.map(|grace| ("grace".to_owned(), grace.to_owned())));
            keys.extend(gate_timeout.map(|limit| ("gate-timeout".to_owned(), limit.to_owned())));
            for (name, (gate, own_grace)) in sidecars.iter().zip(settings) {
                if !gate.is_empty() {
                    keys.push((format!("ready.{name}"), gate.to_owned()));
                }
                if !own_grace.is_empty() && grace.is_none() {
                    keys.push((format!("grace.{name}"), own_grace.to_owned()));
                }
            }
            for (index, (restart, fatal)) in ends.iter().enumerate().take(names.len()) {
                let role = roles[index];
                if !restart.is_empty() {
                    keys.push((format!("restart.{}", names[index]), (*restart).to_owned()));
                }
                // Only an exit that is shown can be fatal.
                let shown = restart.is_empty() || restart.contains("limit");
                if !fatal.is_empty() && role != "init" && shown {
                    keys.push((format!("fatal.{}", names[index]), (*fatal).to_owned()));
                }
            }
            for (name, (migrate, _)) in seconds.iter().zip(&hooks) {
                if !migrate.is_empty() {
                    keys.push((format!("migrate.{name}"), "exec:migrate".to_owned()));
                }
            }
            for (index, choices) in after.iter().enumerate().take(names.len()) {
                if !seconds.contains(&names[index]) {
                    let after = write_after(index, choices, direction, &names, &sidecars);
                    keys.extend(after.filter(|(_, value)| !seconds.iter().any(|name| value.contains(name))));
                }
            }
            for (name, (on_terminate, pre_stop)) in names.iter().zip(hooks) {
                if !on_terminate.is_empty() {
                    keys.push((format!("on-terminate.{name}"), on_terminate.to_owned()));
                }
                // An init has none (I6).
                if !pre_stop.is_empty() && !inits.contains(name.as_str()) {
                    keys.push((format!("pre-stop.{name}"), pre_stop.to_owned()));
                }
            }
            (keys, names)
        },
    )
}

/// Which way `after` goes in a plan: never both, so that there is no circle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Direction {
    Backwards,
    Forwards,
}

/// What one container may start after: others by number, and what must be true of them.
fn after() -> impl Strategy<Value = Vec<(usize, &'static str)>> {
    let entry = (0..8_usize, select(vec!["started", "ready", "done"]));
    prop_oneof![3 => Just(Vec::new()), 1 => prop::collection::vec(entry, 1..3)]
}

fn write_after(
    index: usize,
    choices: &[(usize, &str)],
    direction: Direction,
    names: &[String],
    sidecars: &[String],
) -> Option<(String, String)> {
    let others = match direction {
        Direction::Backwards => &names[..index],
        Direction::Forwards => &names[index + 1..],
    };
    let mut entries = Vec::new();
    let mut named = Vec::new();
    for (choice, condition) in choices {
        let Some(other) = others.get(choice % others.len().max(1)).filter(|other| !named.contains(other))
        else {
            continue;
        };
        named.push(other);
        let condition = if sidecars.contains(other) && *condition == "done" { "ready" } else { *condition };
        entries.push(format!("{other}={condition}"));
    }
    (!entries.is_empty()).then(|| (format!("after.{}", names[index]), entries.join(", ")))
}

fn size_of(role: &str, size: usize) -> usize {
    match role {
        "main" => 1,
        "standby" => 2,
        _ => size,
    }
}

fn write_plan(entries: &[Entry]) -> (String, Vec<String>, Vec<String>) {
    let (mut words, mut sidecars, mut names) = (Vec::new(), Vec::new(), Vec::new());
    for (role, size) in entries {
        let size = size_of(role, *size);
        let group: Vec<String> = (0..size).map(|index| format!("c{}", names.len() + index)).collect();
        words.push(match *role {
            "standby" => format!("{}=sidecar", group.join("|")),
            role => format!("{}={role}", group.join("+")),
        });
        if matches!(*role, "sidecar" | "standby") {
            sidecars.extend(group.iter().cloned());
        }
        names.extend(group);
    }
    (words.join(", "), sidecars, names)
}

/// What a container's spec says to the kernel's OOM killer.
fn oom_score() -> impl Strategy<Value = Option<i32>> {
    select(vec![None, Some(-998), Some(2), Some(500), Some(1000)])
}

/// What happens to the pod once it is there.
fn command(names: &[String]) -> BoxedStrategy<Command> {
    let mut known = names.to_vec();
    known.push("extra".to_owned());
    let name = select(known.clone());
    let ids: Vec<String> = known.iter().flat_map(|name| [name.clone(), format!("{name}-2")]).collect();
    let id =
        select([&known[..], &known[..], &ids[..]].concat()).prop_map(|id| ContainerId::from(id.as_str()));
    let target = || {
        let exec = select(vec![None, None, None, Some("e1"), Some("e2")]);
        (id.clone(), exec).prop_map(|(container, exec)| Target { container, exec: exec.map(Into::into) })
    };
    let signals =
        vec![Signal::TERM, Signal::TERM, Signal::TERM, Signal::KILL, Signal::KILL, Signal::HUP, Signal::QUIT];
    let reach = select(vec![Reach::Process, Reach::Process, Reach::All]);
    let kinds = select(vec![
        OperationKind::Create,
        OperationKind::Start,
        OperationKind::Start,
        OperationKind::Recreate,
        OperationKind::Recreate,
        OperationKind::Remove,
        OperationKind::Pause,
        OperationKind::Resume,
        OperationKind::StartExec,
        OperationKind::RemoveExec,
        OperationKind::KillRemaining,
        OperationKind::Check,
        OperationKind::RunHook,
    ]);
    let new = (
        name.clone(),
        prop::bool::weighted(0.3),
        prop::bool::weighted(0.2),
        select(vec![0, 0, 0, 1, 2]),
        oom_score(),
    );
    let new = new.prop_map(|(name, second, shared, kubelet, oom_score)| {
        let mut new = NewContainer::named(&name);
        new.oom_score_adj = oom_score;
        if second {
            new.id = format!("{name}-2").as_str().into();
        }
        if shared {
            new.pid_namespace = PidNamespace::Shared;
        }
        new.kubelet_type = [None, Some(KubeletType::Init), Some(KubeletType::Regular)][kubelet];
        new
    });
    let pause = || ContainerId::from("pause");
    prop_oneof![
        4 => new.prop_map(Command::Create),
        3 => name.clone().prop_map(|name| Command::Up(vec![name])),
        5 => target().prop_map(Command::Start),
        3 => (id.clone(), select(vec!["e1", "e2"])).prop_map(|(id, exec)| Command::Exec(id, exec.into())),
        8 => (target(), select(signals), reach).prop_map(|(target, signal, reach)| Command::Kill(target, signal, reach)),
        2 => target().prop_map(Command::Wait),
        3 => target().prop_map(Command::Delete),
        2 => name.clone().prop_map(Command::Switch),
        2 => id.clone().prop_map(Command::Pause),
        2 => id.clone().prop_map(Command::Resume),
        4 => (target(), select(vec![0_u32, 1, 137])).prop_map(|(target, code)| Command::Exit(target, code)),
        1 => id.clone().prop_map(Command::OutOfMemory),
        3 => (id.clone(), duration()).prop_map(|(id, grace)| Command::StopContainer(id, grace)),
        1 => Just(Command::StopSandbox(known.iter().map(|id| id.as_str().into()).collect())),
        1 => prop::option::of(duration()).prop_map(Command::StopPod),
        1 => Just(Command::Kill(Target::init(pause()), Signal::TERM, Reach::Process)),
        1 => Just(Command::Exit(Target::init(pause()), 0)),
        3 => (name.clone(), kinds.clone(), duration()).prop_map(|(name, kind, time)| Command::Slow(name, kind, time)),
        3 => (name, kinds).prop_map(|(name, kind)| Command::Fail(name, kind)),
        14 => duration().prop_map(Command::Advance),
    ]
    .boxed()
}

fn scenario() -> impl Strategy<Value = Scenario> {
    let caller = select(vec![PodCaller::Cri, PodCaller::CriWithCleanup, PodCaller::Ctr]);
    (pod(), caller).prop_flat_map(|((annotations, names), caller)| {
        let programs = prop::collection::vec(program(), names.len());
        let hooks = prop::collection::vec((program(), program()), names.len());
        let start = Just(names.clone()).prop_shuffle();
        let scores = prop::collection::vec(oom_score(), names.len());
        let head = Command::Pod { caller, detail: Detail::Usual, annotations };
        let commands = prop::collection::vec(command(&names), 0..30);
        (Just(head), programs, hooks, (start, scores), 0..=names.len(), commands).prop_map(
            move |(head, programs, hooks, (start, scores), started, commands)| {
                let mut all = vec![head];
                all.extend(
                    names.iter().zip(programs).map(|(name, program)| Command::Program(name.clone(), program)),
                );
                for (name, (on_terminate, pre_stop)) in names.iter().zip(hooks) {
                    all.push(Command::Program(format!("{name}/on-terminate"), on_terminate));
                    all.push(Command::Program(format!("{name}/pre-stop"), pre_stop));
                }
                for (name, oom_score_adj) in start.into_iter().zip(scores).take(started) {
                    let new = NewContainer { oom_score_adj, ..NewContainer::named(&name) };
                    all.push(Command::Create(new));
                    all.push(Command::Advance(Duration::ZERO));
                    all.push(Command::Start(Target::init(name.as_str().into())));
                }
                all.extend(commands);
                Scenario(all)
            },
        )
    })
}

/// What a determined caller does: everything is asked to stop, then killed, then deleted.
fn stop_everything(simulator: &mut Simulator) -> Result<(), String> {
    // A scripted failure can hit the first tries.
    for signal in std::iter::once(Signal::TERM).chain([Signal::KILL; MAX_TRIES]) {
        if !simulator.has_live_containers() {
            break;
        }
        for id in simulator.containers() {
            let kill = Command::Kill(Target::init(id), signal, Reach::Process);
            simulator.execute(&kill).map_err(|error| error.to_string())?;
        }
        simulator.execute(&Command::Advance(LONG)).map_err(|error| error.to_string())?;
    }
    simulator.execute(&Command::Advance(LONG)).map_err(|error| error.to_string())?;
    if simulator.has_live_containers() {
        return Err("containers are left although everything was killed".to_owned());
    }
    simulator.check_idle().map_err(|error| error.to_string())?;
    for _ in 0..MAX_TRIES {
        for id in simulator.containers() {
            let delete = Command::Delete(Target::init(id));
            simulator.execute(&delete).map_err(|error| error.to_string())?;
            simulator.execute(&Command::Advance(LONG)).map_err(|error| error.to_string())?;
        }
    }
    match simulator.containers().is_empty() {
        true => simulator.check_idle().map_err(|error| error.to_string()),
        false => Err("containers are left although everything was deleted".to_owned()),
    }
}

/// `PROPTEST_CASES` asks for another number: the longer, the rarer the pod.
fn config() -> ProptestConfig {
    let cases =
        if std::env::var_os("PROPTEST_CASES").is_some() { ProptestConfig::default().cases } else { CASES };
    ProptestConfig { cases, max_shrink_iters: 4000, failure_persistence: None, ..ProptestConfig::default() }
}

proptest! {
    #![proptest_config(config())]

    /// DESIGN §2's promises, whatever happens.
    #[test]
    fn promises_hold(scenario in scenario().prop_map(Readable)) {
        let mut simulator = Simulator::default();
        let result = simulator.run(&scenario.0).map_err(|error| error.to_string());
        prop_assert!(simulator.has_plan(), "the plan is invalid:\n{}", scenario.0);
        let result = result.and_then(|()| stop_everything(&mut simulator));
        if let Err(error) = result {
            let trace = simulator.take_trace().join("\n");
            prop_assert!(false, "{error}\n\n{}----\n{trace}\n", scenario.0);
        }
    }
}

/// A scenario whose debug form is the scenario file.
#[derive(Clone)]
struct Readable(Scenario);

impl std::fmt::Debug for Readable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "\n{}", self.0)
    }
}
