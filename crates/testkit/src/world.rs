//! The fake node under the pod: processes that play their programs, and operations that take time and can fail.
//!
//! Owns the state of processes; knows nothing of pods, roles or order. All future events lie in one queue ordered by
//! time, so that each run is the same.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pod_lifecycle::{
    Check, ContainerId, Event, Exit, Failure, Hook, OpId, Operation, Outcome, PidNamespace, PodTime, Reach,
    RefusalKind, Target, WallTime,
};
use pod_spec::{GateAction, Signal};

use crate::operation_kind::OperationKind;
use crate::program::{OnStop, Program, Run};

/// No real process has a pid this high.
const FIRST_PID: u32 = 0x4000_0000;

/// The fake node.
#[derive(Clone, Debug, Default)]
pub(crate) struct World {
    processes: BTreeMap<Target, Process>,
    /// The hooks that run, by their names in traces.
    hooks: BTreeMap<Target, OpId>,
    names: BTreeMap<ContainerId, (String, PidNamespace)>,
    programs: BTreeMap<String, Program>,
    runs: BTreeMap<String, usize>,
    frozen: BTreeSet<ContainerId>,
    slow: BTreeMap<(String, OperationKind), Duration>,
    failures: Vec<(String, OperationKind)>,
    losses: Vec<(String, OperationKind)>,
    /// Operations that always fail.
    broken: Vec<(String, OperationKind)>,
    queue: BTreeMap<(PodTime, u64), Happening>,
    queued: u64,
    pids: u32,
}

/// A live process.
#[derive(Clone, Debug)]
struct Process {
    pid: u32,
    stage: Stage,
    /// When its death is due; a later one does not count any more.
    dies_at: Option<PodTime>,
    /// What a frozen process has not acted on yet (K17).
    pending: Vec<Blow>,
}

#[derive(Clone, Debug)]
enum Stage {
    /// The runtime's init: any signal ends it.
    RuntimeInit,
    Program {
        run: Run,
        since: PodTime,
    },
}

/// What can hit a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blow {
    Signal(Signal),
    Death(u32),
}

/// Something that will happen.
#[derive(Clone, Debug)]
enum Happening {
    Done { op: OpId, container: ContainerId, operation: Operation, fails: Option<String>, answer: Answer },
    Death { target: Target, pid: u32, code: u32 },
}

/// What the driver reports of an operation that has done its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    True,
    /// The runtime was killed after its work, so the driver reports a failure.
    Lost,
}

/// What the world shows of its programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Sight {
    /// A program has begun.
    Began(Target),
    /// A program was sent a signal.
    Signalled(Target, Signal),
    /// A program is gone.
    Ended(Target, u32),
}

impl World {
    pub(crate) fn set_program(&mut self, name: String, program: Program) {
        self.programs.insert(name, program);
    }

    pub(crate) fn slow_down(&mut self, name: String, kind: OperationKind, time: Duration) {
        self.slow.insert((name, kind), time);
    }

    pub(crate) fn fail_next(&mut self, name: String, kind: OperationKind) {
        self.failures.push((name, kind));
    }

    /// Such an operation fails each time, also after `heal`.
    pub(crate) fn fail_always(&mut self, name: String, kind: OperationKind) {
        self.broken.push((name, kind));
    }

    /// The names of the containers whose operations always fail.
    pub(crate) fn broken(&self) -> impl Iterator<Item = &str> {
        self.broken.iter().map(|(name, _)| name.as_str())
    }

    pub(crate) fn lose_next(&mut self, name: String, kind: OperationKind) {
        self.losses.push((name, kind));
    }

    /// From now on operations are quick and succeed.
    pub(crate) fn heal(&mut self) {
        self.slow.clear();
        self.failures.clear();
        self.losses.clear();
    }

    pub(crate) fn name(&mut self, id: ContainerId, name: String, pid_namespace: PidNamespace) {
        self.names.insert(id, (name, pid_namespace));
    }

    pub(crate) fn next_at(&self) -> Option<PodTime> {
        self.queue.keys().next().map(|(at, _)| *at)
    }

    fn push(&mut self, at: PodTime, happening: Happening) {
        self.queued += 1;
        self.queue.insert((at, self.queued), happening);
    }

    fn name_of(&self, id: &ContainerId) -> String {
        self.names.get(id).map_or_else(|| id.to_string(), |(name, _)| name.clone())
    }

    fn next_pid(&mut self) -> u32 {
        self.pids += 1;
        FIRST_PID + self.pids
    }

    fn script(&mut self, name: &str) -> Run {
        let before = self.runs.entry(name.to_owned()).or_default();
        let run = self.programs.get(name).map(|program| program.run(*before)).unwrap_or_default();
        *before += 1;
        run
    }

    /// Begins an operation. Its result comes at its end.
    pub(crate) fn run(
        &mut self,
        now: PodTime,
        op: OpId,
        container: ContainerId,
        operation: Operation,
    ) -> Vec<Sight> {
        let (name, kind) = (self.name_of(&container), OperationKind::of(&operation));
        let broken = self.broken.iter().any(|(who, what)| *who == name && *what == kind);
        let fails = take(&mut self.failures, &name, kind).is_some() || broken;
        let mut fails = fails.then(|| format!("{kind} failed"));
        let answer = take(&mut self.losses, &name, kind).map_or(Answer::True, |_| Answer::Lost);
        let mut ends = now + self.slow.get(&(name.clone(), kind)).copied().unwrap_or_default();
        let mut sights = Vec::new();
        let init = Target::init(container.clone());
        match &operation {
            Operation::Start if fails.is_none() => match self.processes.contains_key(&init) {
                true => sights.push(self.begin(now, &init, &name)),
                false => fails = Some("the runtime's init is gone".to_owned()),
            },
            Operation::Check(Check::Executed { timeout }) => {
                let executed = self.executed_at(&init);
                match executed {
                    Some(at) if at <= now + *timeout => ends = ends.max(at),
                    Some(_) => {
                        ends = now + *timeout;
                        fails = Some("not exec'd yet".to_owned());
                    }
                    None => fails = Some("no process".to_owned()),
                }
            }
            Operation::RunHook { hook, .. } if fails.is_none() => match self.processes.contains_key(&init) {
                true => return vec![self.begin_hook(now, op, container, *hook)],
                false => fails = Some("the container has no process".to_owned()),
            },
            // Answered when the program reports, or when the wait is over.
            Operation::Check(Check::Probe { action, timeout }) if action.is_waited_for() => {
                let ready_at = self.ready_at(&init).filter(|at| *at <= now + *timeout);
                ends = ends.max(ready_at.unwrap_or(now + *timeout));
            }
            Operation::StartExec(_) if !self.processes.contains_key(&init) => {
                fails = Some("the container has no process".to_owned());
            }
            Operation::Remove if self.processes.contains_key(&init) => {
                self.strike(now, &init, Blow::Death(137));
            }
            _ => {}
        }
        self.push(ends, Happening::Done { op, container, operation, fails, answer });
        sights
    }

    fn begin(&mut self, now: PodTime, target: &Target, script: &str) -> Sight {
        let run = self.script(script);
        let ends = run.ends;
        if let Some(process) = self.processes.get_mut(target) {
            process.stage = Stage::Program { run, since: now };
        }
        if let Some(end) = ends {
            self.die_at(now + end.after, target, end.code);
        }
        Sight::Began(target.clone())
    }

    /// A hook for which no scenario has a program succeeds at once.
    fn begin_hook(&mut self, now: PodTime, op: OpId, container: ContainerId, hook: Hook) -> Sight {
        let script = format!("{}/{hook}", self.name_of(&container));
        let unnamed = !self.programs.contains_key(&script);
        let target = Target { container, exec: Some(hook.to_string().as_str().into()) };
        self.new_process(target.clone());
        self.hooks.insert(target.clone(), op);
        let began = self.begin(now, &target, &script);
        if unnamed {
            self.die_at(now, &target, 0);
        }
        began
    }

    /// What the pod learns of a process's end: for a hook, that its operation has ended.
    fn end_of(&mut self, now: PodTime, target: Target, code: u32) -> Event {
        match self.hooks.remove(&target) {
            Some(op) => {
                let outcome = if code == 0 { Outcome::Ok } else { failed(format!("exit status {code}")) };
                Event::Done { op, outcome, at: wall(now) }
            }
            None => Event::Exited { target, exit: Exit { code, at: wall(now) } },
        }
    }

    fn executed_at(&self, target: &Target) -> Option<PodTime> {
        match &self.processes.get(target)?.stage {
            Stage::RuntimeInit => None,
            Stage::Program { run, since } => Some(*since + run.exec_after),
        }
    }

    /// When the program is ready; `None` = never.
    fn ready_at(&self, target: &Target) -> Option<PodTime> {
        match &self.processes.get(target)?.stage {
            Stage::RuntimeInit => None,
            Stage::Program { run, since } => run.ready_after.map(|after| *since + after),
        }
    }

    fn is_ready(&self, now: PodTime, target: &Target) -> bool {
        self.ready_at(target).is_some_and(|at| now >= at)
    }

    /// Makes a process die at that time, unless it dies earlier.
    fn die_at(&mut self, at: PodTime, target: &Target, code: u32) {
        let Some(process) = self.processes.get_mut(target) else { return };
        if process.dies_at.is_some_and(|due| due <= at) {
            return;
        }
        process.dies_at = Some(at);
        let pid = process.pid;
        self.push(at, Happening::Death { target: target.clone(), pid, code });
    }

    /// Sends a signal. A process that has exited is no error.
    pub(crate) fn signal(
        &mut self,
        now: PodTime,
        target: &Target,
        signal: Signal,
        reach: Reach,
    ) -> Vec<Sight> {
        let mut targets = vec![target.clone()];
        if reach == Reach::All && target.exec.is_none() {
            targets.extend(self.execs_of(&target.container));
        }
        let mut sights = Vec::new();
        for target in targets {
            if let Some(Process { stage: Stage::Program { .. }, .. }) = self.processes.get(&target) {
                sights.push(Sight::Signalled(target.clone(), signal));
            }
            self.strike(now, &target, Blow::Signal(signal));
        }
        sights
    }

    /// A program exits by itself.
    pub(crate) fn exit(&mut self, now: PodTime, target: &Target, code: u32) {
        self.strike(now, target, Blow::Death(code));
    }

    fn strike(&mut self, now: PodTime, target: &Target, blow: Blow) {
        let frozen = self.frozen.contains(&target.container);
        let Some(process) = self.processes.get_mut(target) else { return };
        if frozen {
            return process.pending.push(blow);
        }
        let (at, code) = match (blow, &process.stage) {
            // U1: a runtime's init never exits with 0.
            (Blow::Death(0), Stage::RuntimeInit) => (now, 137),
            (Blow::Death(code), _) => (now, code),
            (Blow::Signal(Signal::KILL), _) => (now, 137),
            (Blow::Signal(signal), Stage::RuntimeInit) => (now, 128 + u32::from(signal.number())),
            (Blow::Signal(Signal::HUP), Stage::Program { .. }) => return,
            (Blow::Signal(_), Stage::Program { run, .. }) => match run.on_stop {
                OnStop::Exits(end) => (now + end.after, end.code),
                OnStop::Ignores => return,
            },
        };
        self.die_at(at, target, code);
    }

    fn execs_of(&self, container: &ContainerId) -> Vec<Target> {
        let execs =
            self.processes.keys().filter(|other| other.container == *container && other.exec.is_some());
        execs.cloned().collect()
    }

    /// Takes the next happening that is due, with the events that the pod gets for it.
    pub(crate) fn happen(&mut self, now: PodTime) -> Option<(Vec<Sight>, Vec<Event>)> {
        let key = self.queue.keys().next().copied().filter(|(at, _)| *at <= now)?;
        let happening = self.queue.remove(&key)?;
        let mut sights = Vec::new();
        let events = match happening {
            Happening::Death { target, pid, code } => self.died(now, target, pid, code, &mut sights),
            Happening::Done { op, container, operation, fails, answer } => {
                let mut events = Vec::new();
                let kind = OperationKind::of(&operation);
                let outcome = match fails {
                    Some(message) => failed(message),
                    None => self.completed(now, &container, &operation, &mut sights, &mut events),
                };
                let outcome = match (outcome, answer) {
                    (outcome, Answer::True) => outcome,
                    (_, Answer::Lost) => failed(format!("{kind} took too long")),
                };
                events.push(Event::Done { op, outcome, at: wall(now) });
                events
            }
        };
        Some((sights, events))
    }

    fn died(
        &mut self,
        now: PodTime,
        target: Target,
        pid: u32,
        code: u32,
        sights: &mut Vec<Sight>,
    ) -> Vec<Event> {
        let frozen = self.frozen.contains(&target.container);
        match self.processes.get_mut(&target) {
            Some(process) if process.pid == pid && process.dies_at == Some(now) => {
                if frozen {
                    process.dies_at = None;
                    process.pending.push(Blow::Death(code));
                    return Vec::new();
                }
            }
            _ => return Vec::new(),
        }
        let Some(process) = self.processes.remove(&target) else { return Vec::new() };
        if matches!(process.stage, Stage::Program { .. }) {
            sights.push(Sight::Ended(target.clone(), code));
        }
        if target.exec.is_none() && self.has_own_pids(&target.container) {
            // The kernel ends everything in a PID namespace with its init.
            for exec in self.execs_of(&target.container) {
                self.die_at(now, &exec, 137);
            }
        }
        vec![self.end_of(now, target, code)]
    }

    fn has_own_pids(&self, container: &ContainerId) -> bool {
        self.names.get(container).is_none_or(|(_, namespace)| *namespace == PidNamespace::Private)
    }

    fn completed(
        &mut self,
        now: PodTime,
        container: &ContainerId,
        operation: &Operation,
        sights: &mut Vec<Sight>,
        events: &mut Vec<Event>,
    ) -> Outcome {
        let init = Target::init(container.clone());
        match operation {
            Operation::Create | Operation::Recreate => self.new_process(init),
            Operation::StartExec(exec) => {
                // Under way when the init ended: the exec appears all the same, unless the PID namespace ended with the
                // init.
                if !self.processes.contains_key(&init) && self.has_own_pids(container) {
                    return failed("the container has no process".to_owned());
                }
                let target = Target { container: container.clone(), exec: Some(exec.clone()) };
                let outcome = self.new_process(target.clone());
                let script = format!("{}/{exec}", self.name_of(container));
                sights.push(self.begin(now, &target, &script));
                outcome
            }
            Operation::KillRemaining => {
                for target in self.execs_of(container) {
                    self.processes.remove(&target);
                    sights.push(Sight::Ended(target.clone(), 137));
                    events.push(self.end_of(now, target, 137));
                }
                Outcome::Ok
            }
            Operation::Pause => {
                self.frozen.insert(container.clone());
                Outcome::Ok
            }
            Operation::Resume => {
                self.frozen.remove(container);
                for target in self.execs_of(container).into_iter().chain([init]) {
                    let pending = self.processes.get_mut(&target).map(|p| std::mem::take(&mut p.pending));
                    for blow in pending.unwrap_or_default() {
                        self.strike(now, &target, blow);
                    }
                }
                Outcome::Ok
            }
            Operation::Remove => {
                self.frozen.remove(container);
                Outcome::Ok
            }
            Operation::Check(Check::Executed { .. }) => match self.executed_at(&init) {
                Some(at) if at <= now => Outcome::Ok,
                _ => failed("not exec'd yet".to_owned()),
            },
            Operation::Check(Check::Probe { action, .. }) => match (self.is_ready(now, &init), action) {
                (true, _) => Outcome::Ok,
                (false, GateAction::Tcp { port, .. }) => failed(format!("tcp:{port} refused")),
                (false, GateAction::Exec(_)) => failed("the command exited with 1".to_owned()),
                (false, action) => failed(format!("{action} failed")),
            },
            Operation::Restore => {
                let outcome = self.new_process(init.clone());
                sights.push(self.begin(now, &init, &self.name_of(container)));
                outcome
            }
            Operation::CreateSpent
            | Operation::PrepareRestore
            | Operation::Checkpoint(_)
            | Operation::Start
            | Operation::RunHook { .. }
            | Operation::RemoveExec(_) => Outcome::Ok,
        }
    }

    fn new_process(&mut self, target: Target) -> Outcome {
        let pid = self.next_pid();
        self.frozen.remove(&target.container);
        let process = Process { pid, stage: Stage::RuntimeInit, dies_at: None, pending: Vec::new() };
        self.processes.insert(target, process);
        Outcome::Process { pid }
    }
}

/// Takes the next fault of an operation, if one is due.
fn take(faults: &mut Vec<(String, OperationKind)>, name: &str, kind: OperationKind) -> Option<()> {
    let index = faults.iter().position(|(who, what)| who == name && *what == kind)?;
    faults.remove(index);
    Some(())
}

fn failed(message: String) -> Outcome {
    Outcome::Failed(Failure { message, kind: RefusalKind::Internal })
}

fn wall(now: PodTime) -> WallTime {
    WallTime(now.since_epoch())
}
