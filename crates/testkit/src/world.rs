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

/// After this time podshim kills a runtime that makes processes.
pub(crate) const RUNTIME_LIMIT: Duration = Duration::from_secs(120);

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
    queue: BTreeMap<(PodTime, u64), Scheduled>,
    queued: u64,
    pids: u32,
}

/// A live process.
#[derive(Clone, Debug)]
struct Process {
    pid: u32,
    stage: Stage,
    /// When its exit is due; a later one does not count any more.
    exits_at: Option<PodTime>,
    /// What a frozen process has not acted on yet (K17).
    pending: Vec<Termination>,
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

/// What can end a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Termination {
    Signal(Signal),
    Exit(u32),
}

/// Something that will happen.
#[derive(Clone, Debug)]
enum Scheduled {
    Done {
        op: OpId,
        container: ContainerId,
        operation: Operation,
        fails: Option<String>,
        answer: ReportedOutcome,
    },
    Exit {
        target: Target,
        pid: u32,
        code: u32,
    },
}

/// What the driver reports of an operation that has done its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReportedOutcome {
    Actual,
    /// The runtime was killed after its work, so the driver reports a failure.
    Lost,
}

/// What the world shows of its programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ProcessEvent {
    /// A program has begun.
    Started(Target),
    /// A program was sent a signal.
    Signalled(Target, Signal),
    /// A program is gone.
    Exited(Target, u32),
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

    fn push(&mut self, at: PodTime, happening: Scheduled) {
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
    ) -> Vec<ProcessEvent> {
        let (name, kind) = (self.name_of(&container), OperationKind::of(&operation));
        let broken = self.broken.iter().any(|(who, what)| *who == name && *what == kind);
        let fails = take(&mut self.failures, &name, kind).is_some() || broken;
        let fails = fails.then(|| format!("{kind} failed"));
        let answer =
            take(&mut self.losses, &name, kind).map_or(ReportedOutcome::Actual, |_| ReportedOutcome::Lost);
        let time = self.slow.get(&(name.clone(), kind)).copied().unwrap_or_default();
        // podshim kills a runtime that never returns. It undoes what would have made a process, and a start has begun no program.
        let never_returns = time == RUNTIME_LIMIT && kind.makes_processes();
        let mut fails = fails.or(never_returns.then(|| format!("{kind} was killed after 2m")));
        let mut ends = now + time;
        let mut shown = Vec::new();
        let init = Target::init(container.clone());
        match &operation {
            Operation::Start if fails.is_none() => match self.processes.contains_key(&init) {
                true => shown.push(self.begin(now, &init, &name)),
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
                self.terminate(now, &init, Termination::Exit(137));
            }
            _ => {}
        }
        self.push(ends, Scheduled::Done { op, container, operation, fails, answer });
        shown
    }

    fn begin(&mut self, now: PodTime, target: &Target, script: &str) -> ProcessEvent {
        let run = self.script(script);
        let ends = run.ends;
        if let Some(process) = self.processes.get_mut(target) {
            process.stage = Stage::Program { run, since: now };
        }
        if let Some(end) = ends {
            self.exit_at(now + end.after, target, end.code);
        }
        ProcessEvent::Started(target.clone())
    }

    /// A hook for which no scenario has a program succeeds at once.
    fn begin_hook(&mut self, now: PodTime, op: OpId, container: ContainerId, hook: Hook) -> ProcessEvent {
        let script = format!("{}/{hook}", self.name_of(&container));
        let unnamed = !self.programs.contains_key(&script);
        let target = Target { container, exec: Some(hook.to_string().as_str().into()) };
        self.new_process(target.clone());
        self.hooks.insert(target.clone(), op);
        let began = self.begin(now, &target, &script);
        if unnamed {
            self.exit_at(now, &target, 0);
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
    fn exit_at(&mut self, at: PodTime, target: &Target, code: u32) {
        let Some(process) = self.processes.get_mut(target) else { return };
        if process.exits_at.is_some_and(|due| due <= at) {
            return;
        }
        process.exits_at = Some(at);
        let pid = process.pid;
        self.push(at, Scheduled::Exit { target: target.clone(), pid, code });
    }

    /// Sends a signal. A process that has exited is no error.
    pub(crate) fn signal(
        &mut self,
        now: PodTime,
        target: &Target,
        signal: Signal,
        reach: Reach,
    ) -> Vec<ProcessEvent> {
        let mut targets = vec![target.clone()];
        if reach == Reach::All && target.exec.is_none() {
            targets.extend(self.execs_of(&target.container));
        }
        let mut shown = Vec::new();
        for target in targets {
            if let Some(Process { stage: Stage::Program { .. }, .. }) = self.processes.get(&target) {
                shown.push(ProcessEvent::Signalled(target.clone(), signal));
            }
            self.terminate(now, &target, Termination::Signal(signal));
        }
        shown
    }

    /// Freezes what runs in a container. The pod is not asked, and does not hear of it.
    pub(crate) fn freeze(&mut self, container: &ContainerId) {
        if self.processes.contains_key(&Target::init(container.clone())) {
            self.frozen.insert(container.clone());
        }
    }

    /// Lets what is frozen run again, and act on what it got meanwhile.
    pub(crate) fn thaw(&mut self, now: PodTime, container: &ContainerId) {
        self.frozen.remove(container);
        for target in self.execs_of(container).into_iter().chain([Target::init(container.clone())]) {
            let pending = self.processes.get_mut(&target).map(|p| std::mem::take(&mut p.pending));
            for termination in pending.unwrap_or_default() {
                self.terminate(now, &target, termination);
            }
        }
    }

    /// A program exits by itself.
    pub(crate) fn exit(&mut self, now: PodTime, target: &Target, code: u32) {
        self.terminate(now, target, Termination::Exit(code));
    }

    fn terminate(&mut self, now: PodTime, target: &Target, termination: Termination) {
        let frozen = self.frozen.contains(&target.container);
        let Some(process) = self.processes.get_mut(target) else { return };
        if frozen {
            return process.pending.push(termination);
        }
        let (at, code) = match (termination, &process.stage) {
            // U1: a runtime's init never exits with 0.
            (Termination::Exit(0), Stage::RuntimeInit) => (now, 137),
            (Termination::Exit(code), _) => (now, code),
            (Termination::Signal(Signal::KILL), _) => (now, 137),
            (Termination::Signal(signal), Stage::RuntimeInit) => (now, 128 + u32::from(signal.number())),
            (Termination::Signal(Signal::HUP), Stage::Program { .. }) => return,
            (Termination::Signal(_), Stage::Program { run, .. }) => match run.on_stop {
                OnStop::Exits(end) => (now + end.after, end.code),
                OnStop::Ignores => return,
            },
        };
        self.exit_at(at, target, code);
    }

    fn execs_of(&self, container: &ContainerId) -> Vec<Target> {
        let execs =
            self.processes.keys().filter(|other| other.container == *container && other.exec.is_some());
        execs.cloned().collect()
    }

    /// The pod gives up an operation: it has failed, and has made nothing.
    pub(crate) fn give_up(&mut self, now: PodTime, given_up: OpId) {
        let key = self.queue.iter().find_map(|(key, it)| match it {
            Scheduled::Done { op, .. } if *op == given_up => Some(*key),
            _ => None,
        });
        let Some(Scheduled::Done { op, container, operation, answer, .. }) =
            key.and_then(|key| self.queue.remove(&key))
        else {
            return;
        };
        let fails = Some("given up".to_owned());
        self.push(now, Scheduled::Done { op, container, operation, fails, answer });
    }

    /// Takes the next happening that is due, with the events that the pod gets for it.
    pub(crate) fn happen(&mut self, now: PodTime) -> Option<(Vec<ProcessEvent>, Vec<Event>)> {
        let key = self.queue.keys().next().copied().filter(|(at, _)| *at <= now)?;
        let happening = self.queue.remove(&key)?;
        let mut shown = Vec::new();
        let events = match happening {
            Scheduled::Exit { target, pid, code } => self.exited(now, target, pid, code, &mut shown),
            Scheduled::Done { op, container, operation, fails, answer } => {
                let mut events = Vec::new();
                let kind = OperationKind::of(&operation);
                let outcome = match fails {
                    Some(message) => failed(message),
                    None => self.completed(now, &container, &operation, &mut shown, &mut events),
                };
                let outcome = match (outcome, answer) {
                    (outcome, ReportedOutcome::Actual) => outcome,
                    (_, ReportedOutcome::Lost) => failed(format!("{kind} took too long")),
                };
                events.push(Event::Done { op, outcome, at: wall(now) });
                events
            }
        };
        Some((shown, events))
    }

    fn exited(
        &mut self,
        now: PodTime,
        target: Target,
        pid: u32,
        code: u32,
        shown: &mut Vec<ProcessEvent>,
    ) -> Vec<Event> {
        let frozen = self.frozen.contains(&target.container);
        match self.processes.get_mut(&target) {
            Some(process) if process.pid == pid && process.exits_at == Some(now) => {
                if frozen {
                    process.exits_at = None;
                    process.pending.push(Termination::Exit(code));
                    return Vec::new();
                }
            }
            _ => return Vec::new(),
        }
        let Some(process) = self.processes.remove(&target) else { return Vec::new() };
        if matches!(process.stage, Stage::Program { .. }) {
            shown.push(ProcessEvent::Exited(target.clone(), code));
        }
        if target.exec.is_none() && self.has_own_pids(&target.container) {
            // The kernel ends everything in a PID namespace with its init.
            for exec in self.execs_of(&target.container) {
                self.exit_at(now, &exec, 137);
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
        shown: &mut Vec<ProcessEvent>,
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
                shown.push(self.begin(now, &target, &script));
                outcome
            }
            Operation::KillRemaining => {
                for target in self.execs_of(container) {
                    self.processes.remove(&target);
                    shown.push(ProcessEvent::Exited(target.clone(), 137));
                    events.push(self.end_of(now, target, 137));
                }
                Outcome::Ok
            }
            Operation::Pause => {
                self.frozen.insert(container.clone());
                Outcome::Ok
            }
            Operation::Resume => {
                self.thaw(now, container);
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
                (false, GateAction::Grpc { port, .. }) => failed(format!("grpc:{port}: NOT_SERVING")),
                (false, GateAction::Exec(_)) => failed("the command exited with 1".to_owned()),
                (false, action) => failed(format!("{action} failed")),
            },
            Operation::Restore => {
                let outcome = self.new_process(init.clone());
                shown.push(self.begin(now, &init, &self.name_of(container)));
                outcome
            }
            Operation::CreateCompleted
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
        let process = Process { pid, stage: Stage::RuntimeInit, exits_at: None, pending: Vec::new() };
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
