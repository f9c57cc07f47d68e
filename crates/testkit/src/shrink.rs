//! Whether a scenario keeps every promise, and the smallest part of it that breaks the same one.
//!
//! Owns the judgement of a whole run and its reduction; a panic of the core is a failure like any other.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use crate::command::{Command, PodCaller, Scenario};
use crate::fairness::is_fair;
use crate::kubelet::KubeletSetup;
use crate::new_container::NewContainer;
use crate::program::{Program, Run, RunEnd};
use crate::simulator::Simulator;

/// More tries than any scenario needs; each is a run.
const MAX_TRIES: usize = 20_000;
/// A program that does not end at once ends within this time in a shrunk scenario.
const SECONDS: Duration = Duration::from_secs(3);

/// A broken promise and the run that broke it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What was broken.
    pub error: String,
    /// The trace until then.
    pub trace: Vec<String>,
}

impl Failure {
    /// The promise without the times and names of this run: two failures of one kind mostly have the same cause.
    pub fn kind(&self) -> String {
        let digit = |word: &&str| word.contains(|c: char| c.is_ascii_digit());
        self.error
            .split_whitespace()
            .filter(|word| !digit(word) || word.starts_with('('))
            .collect::<Vec<_>>()
            .join(" ")
    }
}

/// Runs a scenario to its end. An invalid plan, or a pod without its pause container, is not judged.
pub fn check(scenario: &Scenario) -> Option<Failure> {
    let mut simulator = Simulator::default();
    let run = catch_unwind(AssertUnwindSafe(|| {
        let result = simulator.run(scenario);
        result.err().map(|error| error.to_string())
    }));
    let error = run.unwrap_or_else(|_| Some("the core panicked".to_owned()))?;
    (simulator.has_plan() || !has_annotations(scenario))
        .then(|| Failure { error, trace: simulator.take_trace() })
}

fn has_annotations(scenario: &Scenario) -> bool {
    scenario
        .0
        .iter()
        .any(|command| matches!(command, Command::Pod { annotations, .. } if !annotations.is_empty()))
}

/// The smallest scenario found that fails in the same way: without commands, annotations, containers and numbers that
/// do not matter.
pub fn shrink(scenario: Scenario, failure: Failure) -> (Scenario, Failure) {
    let kind = failure.kind();
    let mut shrinker = Shrinker { best: scenario, failure, kind, tries: 0 };
    loop {
        let before = shrinker.best.clone();
        shrinker.drop_containers();
        shrinker.drop_commands();
        shrinker.replace_one_by_one();
        if shrinker.best == before || shrinker.tries >= MAX_TRIES {
            return (shrinker.best, shrinker.failure);
        }
    }
}

struct Shrinker {
    best: Scenario,
    failure: Failure,
    kind: String,
    tries: usize,
}

impl Shrinker {
    fn accepts(&mut self, candidate: Scenario) -> bool {
        self.tries += 1;
        if self.tries > MAX_TRIES || !is_fair(&candidate.0) {
            return false;
        }
        match check(&candidate).filter(|failure| failure.kind() == self.kind) {
            Some(failure) => {
                (self.best, self.failure) = (candidate, failure);
                true
            }
            None => false,
        }
    }

    /// Under a kubelet a container is dropped from the pod's spec, its plan and everything else at once.
    fn drop_containers(&mut self) {
        let names = self.best.0.iter().find_map(|command| match command {
            Command::Kubelet(setup) => {
                Some(setup.containers.iter().map(|container| container.name.clone()).collect::<Vec<_>>())
            }
            _ => None,
        });
        for name in names.unwrap_or_default() {
            let without = without_container(&self.best, &name);
            self.accepts(without);
        }
    }

    /// Drops commands other than the pod's own, in halves, quarters, and so on.
    fn drop_commands(&mut self) {
        let mut size = self.best.0.len().max(2) / 2;
        while size > 0 {
            let mut at = 1;
            while at < self.best.0.len() {
                let mut commands = self.best.0.clone();
                commands.drain(at..(at + size).min(self.best.0.len()));
                if !self.accepts(Scenario(commands)) {
                    at += size;
                }
            }
            size /= 2;
        }
    }

    fn replace_one_by_one(&mut self) {
        let mut at = 0;
        while at < self.best.0.len() {
            for simpler in simpler(&self.best.0[at]) {
                let mut commands = self.best.0.clone();
                commands[at] = simpler;
                if self.accepts(Scenario(commands)) {
                    break;
                }
            }
            at += 1;
        }
    }
}

fn without_container(scenario: &Scenario, name: &str) -> Scenario {
    let about_it = |command: &Command| match command {
        Command::Program(of, _) | Command::Fail(of, _) | Command::Slow(of, ..) => of == name,
        Command::Fault(fault) => fault.name() == Some(name),
        _ => false,
    };
    let mut commands: Vec<_> = scenario.0.iter().filter(|command| !about_it(command)).cloned().collect();
    for command in &mut commands {
        match command {
            Command::Kubelet(setup) => setup.containers.retain(|container| container.name != name),
            Command::Pod { annotations, .. } => {
                let alias = annotations.first().and_then(|(_, plan)| alias_of(plan, name));
                let keys = [Some(name.to_owned()), alias];
                annotations.retain(|(key, _)| {
                    let of = key.split_once('.').map(|(_, of)| of);
                    !keys.iter().flatten().any(|key| of == Some(key))
                });
                if let Some((_, plan)) = annotations.first_mut() {
                    *plan = plan_without(plan, name);
                }
            }
            _ => {}
        }
    }
    Scenario(commands)
}

fn alias_of(plan: &str, name: &str) -> Option<String> {
    let word =
        plan.split([',', '+', '|', '=']).map(str::trim).find(|word| word.starts_with(&format!("{name}@")));
    word.and_then(|word| word.split_once('@')).map(|(_, alias)| alias.to_owned())
}

fn plan_without(plan: &str, name: &str) -> String {
    let entries = plan.split(", ").filter_map(|entry| {
        let (group, role) = entry.split_once('=')?;
        let separator = if group.contains('|') { "|" } else { "+" };
        let is_other = |word: &&str| word.split('@').next() != Some(name);
        let left: Vec<_> = group.split(separator).filter(is_other).collect();
        (!left.is_empty()).then(|| format!("{}={role}", left.join(separator)))
    });
    entries.collect::<Vec<_>>().join(", ")
}

/// What may replace a command, the simplest first.
fn simpler(command: &Command) -> Vec<Command> {
    match command {
        Command::Pod { caller, detail, annotations } => {
            let mut pods = Vec::new();
            let mut pod =
                |caller, annotations| pods.push(Command::Pod { caller, detail: *detail, annotations });
            if *caller != PodCaller::Cri {
                pod(PodCaller::Cri, annotations.clone());
            }
            for index in 1..annotations.len() {
                let mut fewer = annotations.clone();
                fewer.remove(index);
                pod(*caller, fewer);
            }
            for plan in annotations.first().map(|(_, plan)| smaller_plans(plan)).unwrap_or_default() {
                let mut fewer = annotations.clone();
                fewer[0].1 = plan;
                pod(*caller, fewer);
            }
            pods
        }
        Command::Program(name, program) => simpler_programs(program)
            .into_iter()
            .map(|program| Command::Program(name.clone(), program))
            .collect(),
        Command::Create(new) => {
            let plain = NewContainer { id: new.id.clone(), ..NewContainer::named(&new.name) };
            if plain == *new { Vec::new() } else { vec![Command::Create(plain)] }
        }
        Command::Kubelet(setup) => simpler_kubelets(setup).into_iter().map(Command::Kubelet).collect(),
        Command::Advance(time) => shorter(*time).into_iter().map(Command::Advance).collect(),
        Command::Slow(name, kind, time) => {
            shorter(*time).into_iter().map(|time| Command::Slow(name.clone(), *kind, time)).collect()
        }
        Command::StopContainer(id, time) => {
            shorter(*time).into_iter().map(|time| Command::StopContainer(id.clone(), time)).collect()
        }
        Command::StopSandbox(ids) => (0..ids.len())
            .map(|index| {
                let mut fewer = ids.clone();
                fewer.remove(index);
                Command::StopSandbox(fewer)
            })
            .collect(),
        _ => Vec::new(),
    }
}

fn simpler_kubelets(setup: &KubeletSetup) -> Vec<KubeletSetup> {
    let mut simpler = Vec::new();
    let mut with = |change: &dyn Fn(&mut KubeletSetup)| {
        let mut changed = setup.clone();
        change(&mut changed);
        if changed != *setup {
            simpler.push(changed);
        }
    };
    with(&|setup| setup.seed = 0);
    with(&|setup| setup.grace = Duration::from_secs(5));
    for index in 0..setup.containers.len() {
        with(&|setup| setup.containers[index].hook = None);
        with(&|setup| setup.containers[index].has_startup_probe = false);
    }
    simpler
}

/// Plans with one container, or one entry, fewer.
fn smaller_plans(plan: &str) -> Vec<String> {
    let entries: Vec<&str> = plan.split(", ").collect();
    let mut plans = Vec::new();
    for index in 0..entries.len() {
        let mut fewer = entries.clone();
        let removed = fewer.remove(index);
        plans.push(fewer.join(", "));
        for separator in ["+", "|"] {
            let Some((group, role)) = removed.split_once('=').filter(|(group, _)| group.contains(separator))
            else {
                continue;
            };
            let names: Vec<_> = group.split(separator).collect();
            for name in 0..names.len() {
                let mut names = names.clone();
                names.remove(name);
                let entry = format!("{}={role}", names.join(separator));
                let mut smaller = entries.clone();
                smaller[index] = &entry;
                plans.push(smaller.join(", "));
            }
        }
    }
    plans
}

fn simpler_programs(program: &Program) -> Vec<Program> {
    let runs = program.runs();
    let mut programs: Vec<_> = runs.iter().map(|run| Program::new(vec![run.clone()])).collect();
    if runs.len() == 1 {
        programs.clear();
    }
    let default = Run::default();
    for index in 0..runs.len() {
        let mut with = |change: &dyn Fn(&mut Run)| {
            let mut changed = runs.to_vec();
            change(&mut changed[index]);
            if changed != runs {
                programs.push(Program::new(changed));
            }
        };
        with(&|run| run.exec_after = default.exec_after);
        with(&|run| run.ready_after = default.ready_after);
        with(&|run| run.on_stop = default.on_stop);
        with(&|run| run.ends = default.ends);
        with(&|run| run.ends = run.ends.map(|end| RunEnd { code: end.code.min(1), ..end }));
        with(&|run| run.ends = run.ends.map(|end| RunEnd { after: end.after.min(SECONDS), ..end }));
    }
    programs
}

fn shorter(time: Duration) -> Vec<Duration> {
    [0, 1000, 3000].map(Duration::from_millis).into_iter().filter(|shorter| *shorter < time).collect()
}
