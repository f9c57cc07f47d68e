//! The pod core on virtual time: drives it through a fake world, jumping from one event to the next.
//!
//! Owns time, the callers' sequences and the loop `handle`, drain, check. A run that never goes idle, or a deadline
//! that `handle` does not consume, is an error: a shim would be busy for ever.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use pod_lifecycle::{
    Action, Caller, ContainerId, ContainerSpec, Event, Notice, Pod, PodTime, Reach, Request, RequestId,
    Target, TaskKind,
};
use pod_spec::{Plan, Signal};

use crate::command::{Command, Detail, PodCaller, Scenario, show_target};
use crate::invariants::{Invariants, Violation};
use crate::kubelet::Kubelet;
use crate::new_container::NewContainer;
use crate::trace::{Trace, show_request};
use crate::world::World;

mod ending;
mod under_kubelet;

/// The pause container of every pod that has one.
const PAUSE: &str = "pause";
/// More steps than any scenario needs.
const MAX_STEPS: usize = 200_000;
/// More events at one moment than any pod has.
const MAX_STEPS_AT_ONCE: usize = 2_000;

/// Why a run failed.
#[derive(Clone, Debug, thiserror::Error)]
pub enum RunError {
    /// The core broke one of its promises.
    #[error(transparent)]
    Violation(#[from] Violation),
    /// Events go on for ever.
    #[error("at {now}: the pod never goes idle")]
    NeverIdle {
        /// When the simulator gave up.
        now: PodTime,
    },
    /// `handle` left a deadline behind that has already passed.
    #[error("at {now}: the deadline {deadline} is over and still there: a shim would spin")]
    Spins {
        /// The moment.
        now: PodTime,
        /// The deadline.
        deadline: PodTime,
    },
    /// Something was due before the time that `next_deadline` gives: a shim would be late.
    #[error("at {now}: {action} was due by {early}, before the next deadline")]
    Late {
        /// The moment.
        now: PodTime,
        /// What was done.
        action: String,
        /// When it was asked for.
        early: PodTime,
    },
    /// Everything was killed, or deleted, and something is still left.
    #[error("at {now}: {containers:?} are left although everything was {done}")]
    Left {
        /// The moment.
        now: PodTime,
        /// What was done to everything.
        done: &'static str,
        /// What is left.
        containers: Vec<String>,
    },
    /// The pod has not done what its policy promises a kubelet.
    #[error("at {now}: {what}")]
    Unkept {
        /// When the simulator gave up.
        now: PodTime,
        /// What is in the way.
        what: String,
    },
    /// A request that must have been answered by now has no answer.
    #[error("at {now}: {request} is never answered")]
    Unanswered {
        /// The moment.
        now: PodTime,
        /// The request.
        request: String,
    },
}

/// A pod in a fake world.
#[derive(Clone, Debug)]
pub struct Simulator {
    pod: Pod,
    world: World,
    invariants: Invariants,
    trace: Trace,
    now: PodTime,
    caller: PodCaller,
    plan: Option<Plan>,
    requests: BTreeMap<RequestId, Request>,
    next_request: u64,
    steps: VecDeque<(PodTime, CallerStep)>,
    /// The containers that a StopPodSandbox has left; it waits for the first one.
    stopping_sandbox: VecDeque<ContainerId>,
    exited: Vec<ContainerId>,
    kubelet: Option<Box<Kubelet>>,
    /// How many events the pod has been given.
    handled: u64,
}

/// What a caller does later.
#[derive(Clone, Debug)]
enum CallerStep {
    Request(Request),
    /// The end of a StopContainer's grace.
    KillUnlessExited(ContainerId),
}

impl Default for Simulator {
    fn default() -> Self {
        Self::with_plan(None, PodCaller::Ctr)
    }
}

impl Simulator {
    fn with_plan(plan: Option<Plan>, caller: PodCaller) -> Self {
        Self {
            pod: Pod::new(),
            world: World::default(),
            invariants: Invariants::new(plan.clone()),
            trace: Trace::default(),
            now: PodTime::ZERO,
            caller,
            plan,
            requests: BTreeMap::new(),
            next_request: 0,
            steps: VecDeque::new(),
            stopping_sandbox: VecDeque::new(),
            exited: Vec::new(),
            kubelet: None,
            handled: 0,
        }
    }

    /// Runs all commands of a scenario.
    ///
    /// # Errors
    /// The first promise that was broken.
    pub fn run(&mut self, scenario: &Scenario) -> Result<(), RunError> {
        scenario.0.iter().try_for_each(|command| self.execute(command))
    }

    /// The lines since the last call.
    pub fn take_trace(&mut self) -> Vec<String> {
        self.trace.take()
    }

    /// Executes one command and everything that follows from it at the same moment.
    ///
    /// # Errors
    /// The first promise that was broken.
    pub fn execute(&mut self, command: &Command) -> Result<(), RunError> {
        match command {
            Command::Advance(time) => self.run_until(Some(self.now + *time)),
            Command::Idle => self.run_until(None),
            Command::End => self.end(),
            Command::Settle(limit) => self.settle(*limit),
            _ => {
                self.execute_now(command)?;
                self.run_until(Some(self.now))
            }
        }
    }

    /// Executes one command that takes no time.
    fn execute_now(&mut self, command: &Command) -> Result<(), RunError> {
        match command {
            Command::Pod { caller, detail, annotations } => self.new_pod(*caller, *detail, annotations)?,
            Command::Program(name, program) => self.world.set_program(name.clone(), program.clone()),
            Command::Slow(name, kind, time) => self.world.slow_down(name.clone(), *kind, *time),
            Command::Fail(name, kind) => self.world.fail_next(name.clone(), *kind),
            Command::Lose(name, kind) => self.world.lose_next(name.clone(), *kind),
            Command::Create(new) => drop(self.create(new)?),
            Command::Up(names) => {
                for name in names {
                    let created = self.create(&NewContainer::named(name))?;
                    self.run_until_answered(created)?;
                    let started = self.request(Request::Start(Target::init(name.as_str().into())))?;
                    self.run_until_answered(started)?;
                }
            }
            Command::Start(target) => drop(self.request(Request::Start(target.clone()))?),
            Command::Exec(container, exec) => {
                let (container, exec) = (container.clone(), exec.clone());
                self.request(Request::Exec { container, exec })?;
            }
            Command::Kill(target, signal, reach) => self.kill(target.clone(), *signal, *reach)?,
            Command::Wait(target) => drop(self.request(Request::Wait(target.clone()))?),
            Command::Leave(target) => {
                let waits =
                    |(_, request): &(_, &Request)| matches!(request, Request::Wait(of) if of == target);
                let gone: Vec<_> = self.requests.iter().filter(waits).map(|(id, _)| *id).collect();
                for id in gone {
                    self.requests.remove(&id);
                    self.handle(Event::Abandoned { id })?;
                }
            }
            Command::Delete(target) => drop(self.request(Request::Delete(target.clone()))?),
            Command::Switch(name) => drop(self.request(Request::Switch(name.clone()))?),
            Command::KubeletsOwn(names) => {
                self.request(Request::KubeletsOwn(names.iter().cloned().collect()))?;
            }
            Command::Restart => drop(self.request(Request::Restart)?),
            Command::Pause(id) => drop(self.request(Request::Pause(id.clone()))?),
            Command::Resume(id) => drop(self.request(Request::Resume(id.clone()))?),
            Command::Freeze(id) => self.world.freeze(id),
            Command::Checkpoint(id, after) => {
                let _ = self.request(Request::Checkpoint { container: id.clone(), after: *after })?;
            }
            Command::Exit(target, code) => self.world.exit(self.now, target, *code),
            Command::OutOfMemory(id) => {
                self.handle(Event::OutOfMemory { container: id.clone() })?;
                self.world.exit(self.now, &Target::init(id.clone()), 137);
            }
            Command::StopContainer(id, grace) => {
                self.kill(Target::init(id.clone()), Signal::TERM, Reach::Process)?;
                self.later(self.now + *grace, CallerStep::KillUnlessExited(id.clone()));
            }
            Command::StopSandbox(ids) => {
                self.stopping_sandbox = ids.iter().cloned().chain([PAUSE.into()]).collect();
                self.stop_next_of_sandbox();
            }
            Command::StopPod(grace) => self.handle(Event::StopPod { grace: *grace })?,
            Command::Advance(_) | Command::Idle | Command::End | Command::Settle(_) => {}
            Command::Kubelet(setup) => {
                self.caller = PodCaller::CriWithCleanup;
                let kubelet = Kubelet::new(setup.clone(), self.now, self.world.broken());
                self.kubelet = Some(Box::new(kubelet));
            }
            Command::Fault(fault) => self.apply_fault(fault)?,
            Command::View(target) => self.view(target),
            Command::Inspect => self.trace.inspection(self.now, &self.pod.inspect(self.now)),
        }
        Ok(())
    }

    /// A shim parses the plan before it has a pod: an invalid plan leaves nothing behind (S4, S5).
    fn new_pod(
        &mut self,
        caller: PodCaller,
        detail: Detail,
        annotations: &[(String, String)],
    ) -> Result<(), RunError> {
        // A key of another controller is written whole, and this node reads them (S12).
        let whole = |key: &str| {
            if key.contains('/') { key.to_owned() } else { format!("{}{key}", pod_spec::PREFIX) }
        };
        let full: Vec<_> = annotations.iter().map(|(key, value)| (whole(key), value)).collect();
        let node = pod_spec::Node::parse("read = [\"kruise\"]").unwrap_or_default();
        let parsed = node.parse_pod(full.iter().map(|(key, value)| (key.as_str(), value.as_str())));
        *self = match parsed {
            Ok(parsed) => Self::with_plan(parsed.plan, caller),
            Err(error) => {
                *self = Self::default();
                self.trace.push(self.now, &format!("create {PAUSE} -> InvalidArgument: {error}"));
                return Ok(());
            }
        };
        if caller != PodCaller::Ctr {
            let created = self.create_task(&NewContainer::named(PAUSE), TaskKind::Sandbox)?;
            self.run_until_answered(created)?;
            self.request(Request::Start(Target::init(PAUSE.into())))?;
            self.run_until(Some(self.now))?;
            self.trace.take();
        }
        self.trace.detail = detail;
        Ok(())
    }

    fn create(&mut self, new: &NewContainer) -> Result<RequestId, RunError> {
        self.create_task(new, TaskKind::Container)
    }

    fn create_task(&mut self, new: &NewContainer, kind: TaskKind) -> Result<RequestId, RunError> {
        let spec = ContainerSpec {
            name: new.name.clone(),
            kind,
            caller: if self.caller == PodCaller::Ctr { Caller::Other } else { Caller::Cri },
            kubelet_type: new.kubelet_type,
            start_barrier: new.start_barrier,
            pid_namespace: new.pid_namespace,
            kubelet_grace: new.kubelet_grace,
            kubelet: new.kubelet,
            oom_score_adj: new.oom_score_adj,
            origin: new.origin,
            plan: self.plan.clone(),
        };
        if !self.pod.containers().any(|id| *id == new.id) {
            self.exited.retain(|id| *id != new.id);
            self.world.name(new.id.clone(), new.name.clone(), new.pid_namespace);
        }
        self.request(Request::Create { container: new.id.clone(), spec: Box::new(spec) })
    }

    fn kill(&mut self, target: Target, signal: Signal, reach: Reach) -> Result<(), RunError> {
        self.request(Request::Kill { target, signal, reach }).map(drop)
    }

    fn request(&mut self, request: Request) -> Result<RequestId, RunError> {
        self.next_request += 1;
        let id = RequestId(self.next_request);
        self.requests.insert(id, request.clone());
        self.handle(Event::Request { id, request })?;
        Ok(id)
    }

    fn later(&mut self, at: PodTime, step: CallerStep) {
        let index = self.steps.iter().position(|(other, _)| *other > at).unwrap_or(self.steps.len());
        self.steps.insert(index, (at, step));
    }

    fn stop_next_of_sandbox(&mut self) {
        if let Some(id) = self.stopping_sandbox.front() {
            let target = Target::init(id.clone());
            let kill = Request::Kill { target, signal: Signal::KILL, reach: Reach::Process };
            self.later(self.now, CallerStep::Request(kill));
        }
    }

    /// Passes one event to the pod, executes the actions that the pod returns, and checks every promise.
    fn handle(&mut self, event: Event) -> Result<(), RunError> {
        self.invariants.event(self.now, &event)?;
        self.pod.handle(self.now, event);
        while let Some(action) = self.pod.next_action() {
            self.invariants.action(self.now, &action)?;
            self.carry_out(action);
        }
        self.invariants.check(self.now, &self.pod)?;
        match self.pod.next_deadline() {
            Some(deadline) if deadline <= self.now => Err(RunError::Spins { now: self.now, deadline }),
            deadline => self.nothing_is_due_before(deadline),
        }
    }

    /// That the pod knows all of its times: just before the next one nothing is due, and without one nothing ever is. Asked of some
    /// moments, as each costs a copy of the pod.
    fn nothing_is_due_before(&mut self, deadline: Option<PodTime>) -> Result<(), RunError> {
        const ONE_IN: u64 = 8;
        self.handled += 1;
        if !self.handled.is_multiple_of(ONE_IN) {
            return Ok(());
        }
        let time =
            deadline.map_or(Duration::from_secs(86_400), |at| at.since(self.now) - Duration::from_nanos(1));
        let (mut pod, early) = (self.pod.clone(), self.now + time);
        pod.handle(early, Event::Tick);
        match pod.next_action() {
            Some(action) => Err(RunError::Late { now: self.now, action: format!("{action:?}"), early }),
            None => Ok(()),
        }
    }

    fn carry_out(&mut self, action: Action) {
        match action {
            Action::Run { op, container, operation } => {
                for event in self.world.run(self.now, op, container, operation) {
                    self.see(&event);
                }
            }
            Action::Signal { ref target, signal, reach, .. } => {
                self.trace.action(self.now, &action);
                for event in self.world.signal(self.now, target, signal, reach) {
                    self.see(&event);
                }
            }
            Action::Thaw { ref container } => self.world.thaw(self.now, container),
            Action::GiveUp { op, .. } => {
                self.trace.action(self.now, &action);
                self.world.give_up(self.now, op);
            }
            Action::Reply { request, .. } => {
                if let Some(asked) = self.requests.remove(&request) {
                    self.trace.reply(self.now, &asked, &action);
                    self.answered(&asked, &action);
                    self.tell_kubelet_of_answer(request, &action);
                }
            }
            _ => {
                self.trace.action(self.now, &action);
                if let Action::Publish(Notice::Exited {
                    target: Target { container, exec: None },
                    exit,
                    ..
                }) = action
                {
                    self.tell_kubelet_of_exit(&container, exit.code);
                    self.task_exited(container);
                }
            }
        }
    }

    /// A caller that stops a sandbox goes on if a container is gone already.
    fn answered(&mut self, asked: &Request, reply: &Action) {
        if let (Request::Kill { target, .. }, Action::Reply { result: Err(_), .. }) = (asked, reply)
            && self.stopping_sandbox.front() == Some(&target.container)
        {
            self.stopping_sandbox.pop_front();
            self.stop_next_of_sandbox();
        }
    }

    fn task_exited(&mut self, container: ContainerId) {
        self.exited.push(container.clone());
        if self.stopping_sandbox.front() == Some(&container) {
            self.stopping_sandbox.pop_front();
            self.stop_next_of_sandbox();
        }
        if self.caller == PodCaller::CriWithCleanup {
            let target = Target::init(container);
            let kill = Request::Kill { target: target.clone(), signal: Signal::KILL, reach: Reach::All };
            self.later(self.now, CallerStep::Request(kill));
            self.later(self.now, CallerStep::Request(Request::Delete(target)));
        }
    }

    fn take_step(&mut self, step: CallerStep) -> Result<(), RunError> {
        match step {
            CallerStep::Request(request) => self.request(request).map(drop),
            CallerStep::KillUnlessExited(id) if self.exited.contains(&id) => Ok(()),
            CallerStep::KillUnlessExited(id) => self.kill(Target::init(id), Signal::KILL, Reach::Process),
        }
    }

    fn next_at(&self) -> Option<PodTime> {
        let step = self.steps.front().map(|(at, _)| *at);
        let kubelet = self.kubelet.as_ref().and_then(|kubelet| kubelet.next_at());
        step.into_iter().chain(kubelet).chain(self.world.next_at()).chain(self.pod.next_deadline()).min()
    }

    /// Takes what comes next, if it comes by `limit`.
    fn step(&mut self, limit: Option<PodTime>) -> Result<Progress, RunError> {
        let Some(at) = self.next_at().filter(|at| limit.is_none_or(|limit| *at <= limit)) else {
            return Ok(Progress::Nothing);
        };
        self.now = self.now.max(at);
        if self.pod.next_deadline().is_some_and(|deadline| deadline <= self.now) {
            self.handle(Event::Tick)?;
        } else if let Some((shown, events)) = self.world.happen(self.now) {
            for event in shown {
                self.see(&event);
            }
            for event in events {
                self.handle(event)?;
            }
        } else if self.steps.front().is_some_and(|(at, _)| *at <= self.now) {
            if let Some((_, step)) = self.steps.pop_front() {
                self.take_step(step)?;
            }
        } else {
            self.wake_kubelet()?;
        }
        Ok(Progress::Some)
    }

    fn run_until(&mut self, limit: Option<PodTime>) -> Result<(), RunError> {
        let (mut steps, mut at_once, mut last) = (0, 0, self.now);
        while self.step(limit)? == Progress::Some {
            steps += 1;
            at_once = if self.now == last { at_once + 1 } else { 0 };
            last = self.now;
            if steps > MAX_STEPS || at_once > MAX_STEPS_AT_ONCE {
                return Err(RunError::NeverIdle { now: self.now });
            }
        }
        self.now = limit.unwrap_or(self.now);
        Ok(())
    }

    fn run_until_answered(&mut self, request: RequestId) -> Result<(), RunError> {
        let mut steps = 0;
        while let Some(asked) = self.requests.get(&request) {
            let asked = show_request(asked);
            steps += 1;
            if steps > MAX_STEPS || self.step(None)? == Progress::Nothing {
                return Err(RunError::Unanswered { now: self.now, request: asked });
            }
        }
        Ok(())
    }

    fn view(&mut self, target: &Target) {
        match self.pod.view(target) {
            Ok(view) => {
                let pause = self.pod.view(&Target::init(PAUSE.into())).ok().map(|view| view.pid);
                let whose = match (view.has_process, pause == Some(view.pid)) {
                    (true, _) => "own pid",
                    (false, false) if view.pid == 0 => "no pid",
                    (false, true) => "pid of pause",
                    (false, false) => "last pid",
                };
                self.trace.view(self.now, &show_target(target), &view, whose);
            }
            Err(refusal) => self.trace.push(self.now, &format!("view {} -> {refusal}", show_target(target))),
        }
    }

    /// Whether the pod has a plan.
    pub fn has_plan(&self) -> bool {
        self.plan.is_some()
    }

    /// Time since the pod's epoch.
    pub fn now(&self) -> Duration {
        self.now.since_epoch()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Some,
    Nothing,
}
