//! One state of an exploration: the pod, an untimed world around it, and every step that can come next.
//!
//! Owns what the world may do at each moment; the search chooses.

use std::collections::hash_map::DefaultHasher;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::hash::{Hash, Hasher};
use std::rc::Rc;

use pod_lifecycle::{
    Action, ContainerId, Event, Exit, Failure, OpId, Operation, Outcome, Pod, PodTime, Reach, RefusalKind,
    Request, RequestId, Target, TaskKind, WallTime,
};
use pod_spec::Signal;

use super::exploration::{Exploration, Limits, spec_of};
use crate::canonical::Canonical;
use crate::command::show_target;
use crate::invariants::Invariants;
use crate::operation_kind::OperationKind;
use crate::text::show_signal;
use crate::trace::show_request;

/// The pause container.
const PAUSE: &str = "pause";
/// A caller that ends everything needs fewer steps than this.
const MAX_STEPS: usize = 2_000;

#[derive(Clone, Debug)]
pub(super) struct State {
    pod: Pod,
    invariants: Invariants,
    now: PodTime,
    world: Untimed,
    /// How far each caller is, and the request whose answer it waits for.
    callers: Vec<(usize, Option<RequestId>)>,
    next_pid: u32,
    next_request: u64,
    path: Option<Rc<Step>>,
}

/// The part of the world that matters for what comes next.
#[derive(Clone, Debug)]
struct Untimed {
    processes: BTreeMap<Target, Process>,
    operations: Vec<(OpId, ContainerId, Operation)>,
    endings: BTreeMap<String, Vec<u32>>,
    failures: u32,
    /// Containers whose program has ended by itself: their start cannot fail any more.
    ran: BTreeSet<ContainerId>,
}

#[derive(Clone, Debug)]
struct Process {
    program: InitProgram,
    /// It has got a signal, and will end with this code.
    pending_exit_code: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum InitProgram {
    RuntimeInit,
    Program,
}

/// States with the same fingerprint behave the same.
pub(super) struct Fingerprints {
    /// Of the pod and its processes: without what the walk's callers have yet to do, and what may yet go wrong.
    pub(super) pod: u64,
    pub(super) whole: u64,
}

#[derive(Debug)]
struct Step {
    what: String,
    before: Option<Rc<Step>>,
}

/// Something that may come next.
#[derive(Clone, Debug)]
pub(super) enum Choice {
    Caller(usize),
    Done(usize, Success),
    Exit(Target, Cause),
    Tick,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Success {
    Succeeds,
    Fails,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    Signalled,
    Own(u32),
}

/// How a determined caller ends a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    StopAndKill,
    KillPause,
}

impl Untimed {
    /// How an operation must end, if only one way is possible.
    fn can(&self, container: &ContainerId, operation: &Operation) -> Option<Success> {
        let kind = OperationKind::of(operation);
        if kind == OperationKind::Start && self.ran.contains(container) {
            return Some(Success::Succeeds);
        }
        let needs_process = matches!(
            kind,
            OperationKind::Start | OperationKind::StartExec | OperationKind::Check | OperationKind::RunHook
        );
        let process = self.processes.contains_key(&Target::init(container.clone()));
        (needs_process && !process).then_some(Success::Fails)
    }
}

impl State {
    pub(super) fn new(exploration: &Exploration) -> Result<Self, String> {
        let world = Untimed {
            processes: BTreeMap::new(),
            operations: Vec::new(),
            endings: exploration.endings.clone(),
            failures: exploration.limits.failures,
            ran: BTreeSet::new(),
        };
        let mut state = Self {
            pod: Pod::new(),
            invariants: Invariants::new(exploration.plan.clone()),
            now: PodTime::ZERO,
            world,
            callers: vec![(0, None); exploration.callers.len()],
            next_pid: 0x4000_0000,
            next_request: 1_000_000,
            path: None,
        };
        let pause = ContainerId::from(PAUSE);
        let spec = spec_of(PAUSE, TaskKind::Sandbox, exploration.plan.clone());
        for request in [
            Request::Create { container: pause.clone(), spec: Box::new(spec) },
            Request::Start(Target::init(pause)),
        ] {
            state.ask(request)?;
            state.finish_operations()?;
        }
        Ok(state)
    }

    pub(super) fn fingerprints(&self) -> Fingerprints {
        let Untimed { processes, operations, endings, failures, ran } = &self.world;
        let mut canonical = Canonical::at(self.now);
        // invariant: writing to a string does not fail.
        let _ = write!(canonical, "{:?} {processes:?} {operations:?} {ran:?}", self.pod);
        let mut hasher = DefaultHasher::new();
        canonical.text().hash(&mut hasher);
        let of_pod = hasher.finish();
        let length = canonical.text().len();
        let _ = write!(canonical, " {endings:?} {failures} {:?}", self.callers);
        canonical.text()[length..].hash(&mut hasher);
        Fingerprints { pod: of_pod, whole: hasher.finish() }
    }

    pub(super) fn runs_operations(&self) -> bool {
        !self.world.operations.is_empty()
    }

    pub(super) fn note(&mut self, what: String) {
        self.path = Some(Rc::new(Step { what, before: self.path.clone() }));
    }

    pub(super) fn explain(&self, error: &str) -> String {
        let mut steps = Vec::new();
        let mut step = self.path.as_ref();
        while let Some(taken) = step {
            steps.push(taken.what.clone());
            step = taken.before.as_ref();
        }
        steps.reverse();
        format!("{error}\n{}", steps.join("\n"))
    }

    pub(super) fn choices(&self, exploration: &Exploration) -> Vec<Choice> {
        let mut choices = Vec::new();
        for (index, (position, awaits)) in self.callers.iter().enumerate() {
            if awaits.is_none() && *position < exploration.callers[index].len() {
                choices.push(Choice::Caller(index));
            }
        }
        for (index, (_, container, operation)) in self.world.operations.iter().enumerate() {
            let can = self.world.can(container, operation);
            choices.extend((can != Some(Success::Fails)).then_some(Choice::Done(index, Success::Succeeds)));
            if can == Some(Success::Fails) || (can.is_none() && self.world.failures > 0) {
                choices.push(Choice::Done(index, Success::Fails));
            }
        }
        for (target, process) in &self.world.processes {
            if process.pending_exit_code.is_some() {
                choices.push(Choice::Exit(target.clone(), Cause::Signalled));
            }
            if process.program == InitProgram::Program {
                let own = self.world.endings.get(&show_target(target)).into_iter().flatten();
                choices.extend(own.map(|code| Choice::Exit(target.clone(), Cause::Own(*code))));
            }
        }
        choices.extend(self.pod.next_deadline().map(|_| Choice::Tick));
        choices
    }

    pub(super) fn take(&mut self, exploration: &Exploration, choice: &Choice) -> Result<(), String> {
        match choice {
            Choice::Caller(index) => {
                let (position, _) = self.callers[*index];
                let request = exploration.callers[*index][position].clone();
                // The same request always has the same id, whatever came before: ids are part of the state.
                let id = RequestId(*index as u64 * 1000 + position as u64);
                let waits = !matches!(request, Request::Wait(_) | Request::Switch(_));
                self.callers[*index] = (position + 1, waits.then_some(id));
                self.note(show_request(&request));
                self.handle(Event::Request { id, request }, exploration)
            }
            Choice::Done(index, success) => {
                let (op, container, operation) = self.world.operations.remove(*index);
                self.note(format!("{} of {container} {success:?}", OperationKind::of(&operation)));
                self.complete(op, &container, &operation, *success, exploration)
            }
            Choice::Exit(target, cause) => self.die(target, *cause, exploration),
            Choice::Tick => {
                self.now = self.now.max(self.pod.next_deadline().unwrap_or(self.now));
                self.note(format!("time is {}", self.now));
                self.handle(Event::Tick, exploration)
            }
        }
    }

    fn die(&mut self, target: &Target, cause: Cause, exploration: &Exploration) -> Result<(), String> {
        let Some(process) = self.world.processes.remove(target) else { return Ok(()) };
        let code = match cause {
            Cause::Signalled => process.pending_exit_code.unwrap_or_default(),
            Cause::Own(code) => {
                let left = self.world.endings.get_mut(&show_target(target));
                if let Some(codes) = left {
                    let index = codes.iter().position(|other| *other == code);
                    index.map(|index| codes.remove(index));
                }
                let starting = self.world.operations.iter().any(|(_, container, operation)| {
                    *container == target.container && *operation == Operation::Start
                });
                if starting && target.exec.is_none() {
                    self.world.ran.insert(target.container.clone());
                }
                code
            }
        };
        self.note(format!("{} exits with {code}", show_target(target)));
        if target.exec.is_none() {
            // A private PID namespace: the kernel ends the execs.
            for (other, process) in &mut self.world.processes {
                if other.container == target.container {
                    process.pending_exit_code = Some(137);
                }
            }
        }
        let exit = Exit { code, at: WallTime::default() };
        self.handle(Event::Exited { target: target.clone(), exit }, exploration)
    }

    fn complete(
        &mut self,
        op: OpId,
        container: &ContainerId,
        operation: &Operation,
        success: Success,
        exploration: &Exploration,
    ) -> Result<(), String> {
        let init = Target::init(container.clone());
        if *operation == Operation::Start {
            self.world.ran.remove(container);
        }
        let outcome = match (success, operation) {
            (Success::Fails, _) => {
                self.world.failures = self.world.failures.saturating_sub(1);
                if let (Operation::Start, Some(process)) = (operation, self.world.processes.get_mut(&init)) {
                    process.program = InitProgram::RuntimeInit;
                }
                Outcome::Failed(Failure { message: "it failed".to_owned(), kind: RefusalKind::Internal })
            }
            (_, Operation::Create | Operation::Recreate) => self.new_process(init),
            (_, Operation::StartExec(exec)) => {
                let target = Target { container: container.clone(), exec: Some(exec.clone()) };
                let outcome = self.new_process(target.clone());
                if let Some(process) = self.world.processes.get_mut(&target) {
                    process.program = InitProgram::Program;
                }
                outcome
            }
            _ => Outcome::Ok,
        };
        self.handle(Event::Done { op, outcome, at: WallTime::default() }, exploration)
    }

    fn new_process(&mut self, target: Target) -> Outcome {
        self.next_pid += 1;
        let pid = self.next_pid;
        self.world
            .processes
            .insert(target, Process { program: InitProgram::RuntimeInit, pending_exit_code: None });
        Outcome::Process { pid }
    }

    fn ask(&mut self, request: Request) -> Result<(), String> {
        self.next_request += 1;
        let id = RequestId(self.next_request);
        self.handle_with(Event::Request { id, request }, &BTreeSet::new())
    }

    fn handle(&mut self, event: Event, exploration: &Exploration) -> Result<(), String> {
        self.handle_with(event, &exploration.stubborn)
    }

    fn handle_with(&mut self, event: Event, stubborn: &BTreeSet<String>) -> Result<(), String> {
        self.invariants.event(self.now, &event).map_err(|violation| violation.to_string())?;
        self.pod.handle(self.now, event);
        while let Some(action) = self.pod.next_action() {
            self.invariants.action(self.now, &action).map_err(|violation| violation.to_string())?;
            self.carry_out(action, stubborn);
        }
        self.invariants.check(self.now, &self.pod).map_err(|violation| violation.to_string())?;
        match self.pod.next_deadline() {
            Some(deadline) if deadline <= self.now => {
                Err(format!("the deadline {deadline} is over and still there"))
            }
            _ => Ok(()),
        }
    }

    fn carry_out(&mut self, action: Action, stubborn: &BTreeSet<String>) {
        match action {
            Action::Run { op, container, operation } => {
                let init = self.world.processes.get_mut(&Target::init(container.clone()));
                match (&operation, init) {
                    (Operation::Start, Some(process)) => process.program = InitProgram::Program,
                    (Operation::Remove, Some(process)) => process.pending_exit_code = Some(137),
                    _ => {}
                }
                self.world.operations.push((op, container, operation));
            }
            Action::Signal { target, signal, reach, .. } => {
                self.note(format!("  {} gets {}", show_target(&target), show_signal(signal)));
                for (other, process) in &mut self.world.processes {
                    let hit =
                        *other == target || (reach == Reach::All && other.container == target.container);
                    let ignores = process.program == InitProgram::Program
                        && signal != Signal::KILL
                        && (signal == Signal::HUP || stubborn.contains(target.container.as_str()));
                    if hit && !ignores {
                        process.pending_exit_code = Some(128 + u32::from(signal.number()));
                    }
                }
            }
            Action::Reply { request, .. } => {
                for (_, awaits) in &mut self.callers {
                    if *awaits == Some(request) {
                        *awaits = None;
                    }
                }
            }
            Action::Note(line) => self.note(format!("  podshim: {line}")),
            _ => {}
        }
    }

    /// Lets all operations that run succeed, and those that they lead to.
    pub(super) fn finish_operations(&mut self) -> Result<(), String> {
        for _ in 0..MAX_STEPS {
            if self.world.operations.is_empty() {
                return Ok(());
            }
            self.finish_one_operation(&BTreeSet::new())?;
        }
        Err("operations never end".to_owned())
    }

    fn finish_one_operation(&mut self, stubborn: &BTreeSet<String>) -> Result<(), String> {
        let (op, container, operation) = self.world.operations.remove(0);
        let kind = OperationKind::of(&operation);
        let success = self.world.can(&container, &operation).unwrap_or(Success::Succeeds);
        let obeying = Exploration {
            plan: None,
            callers: Vec::new(),
            endings: BTreeMap::new(),
            stubborn: stubborn.clone(),
            limits: Limits { failures: 0, states: 0 },
        };
        self.note(format!("{kind} of {container} {success:?}"));
        self.complete(op, &container, &operation, success, &obeying)
    }

    /// A caller ends the pod, in which no operation runs.
    pub(super) fn end_everything(&mut self, exploration: &Exploration, end: End) -> Result<(), String> {
        let signals: &[Signal] = match end {
            End::StopAndKill => &[Signal::TERM, Signal::KILL, Signal::KILL],
            End::KillPause => &[Signal::KILL],
        };
        for signal in signals {
            let ids: Vec<_> = match end {
                End::StopAndKill => self.pod.containers().cloned().collect(),
                End::KillPause => vec![PAUSE.into()],
            };
            for container in ids {
                let target = Target::init(container);
                self.note(format!("kill {} {}", show_target(&target), show_signal(*signal)));
                self.ask(Request::Kill { target, signal: *signal, reach: Reach::Process })?;
            }
            self.let_it_end(exploration)?;
        }
        let left = self
            .pod
            .containers()
            .find(|id| self.pod.view(&Target::init((*id).clone())).is_ok_and(|view| view.exit.is_none()));
        match left {
            Some(id) => Err(format!("{id} never ends")),
            None => Ok(()),
        }
    }

    /// Lets everything that has begun end: programs obey, time passes.
    fn let_it_end(&mut self, exploration: &Exploration) -> Result<(), String> {
        for _ in 0..MAX_STEPS {
            let ending = self
                .world
                .processes
                .iter()
                .find(|(_, process)| process.pending_exit_code.is_some())
                .map(|(t, _)| t.clone());
            if !self.world.operations.is_empty() {
                self.finish_one_operation(&exploration.stubborn)?;
            } else if let Some(target) = ending {
                self.die(&target, Cause::Signalled, exploration)?;
            } else if self.pod.next_deadline().is_some() {
                self.take(exploration, &Choice::Tick)?;
            } else {
                return Ok(());
            }
        }
        Err("the pod never comes to rest".to_owned())
    }
}
