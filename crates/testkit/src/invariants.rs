//! The promises of the core, checked from outside after every step.
//!
//! Owns its own small picture of the pod, drawn from events and actions alone: it never asks the core's tables, except
//! through `view`, which it checks too.

mod hooks;
mod oom_score;
mod order;
mod picture;
mod restarts;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pod_lifecycle::{
    Action, Check, ContainerId, Event, Exit, MIN_KILL_DELAY, Notice, OpId, Operation, Outcome, Pod, PodTime,
    Reply, Request, RequestId, Status, Target, TaskKind, UNSETTLED,
};
use pod_spec::{Defaults, Gate, Plan, RestartPolicy, Role, Signal};

use picture::{Container, MemberPicture, Process};

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("at {now}: {what}")]
pub struct Violation {
    /// When.
    pub now: PodTime,
    /// Which promise, and which container broke it.
    pub what: String,
}

/// R4: after a run this long restarts count from zero again.
const GOOD_RUN: Duration = Duration::from_secs(600);

type Verdict = Result<(), Violation>;

/// The checker.
#[derive(Clone, Debug)]
pub(crate) struct Invariants {
    plan: Option<Plan>,
    members: BTreeMap<String, MemberPicture>,
    containers: BTreeMap<ContainerId, Container>,
    requests: BTreeMap<RequestId, Request>,
    answered: BTreeSet<RequestId>,
    /// The shown exits of deleted containers.
    deleted: BTreeMap<ContainerId, Exit>,
    operations: BTreeMap<OpId, (ContainerId, Operation, u32)>,
    last_op: u64,
    /// The container of each Create that has not been answered.
    creating: BTreeMap<RequestId, ContainerId>,
    /// The request being handled.
    asking: Option<Request>,
    /// K11: members whose newest container has accepted a stop signal in this round.
    stop_asked: BTreeSet<String>,
    /// T15: members whose newest container has accepted any request to end.
    asked: BTreeSet<String>,
    sandbox_gone: bool,
    /// Whether a stop is under way. It may begin and be over within one event.
    stopping: bool,
    /// R14: whether that stop is the first half of a restart.
    restarting: bool,
    /// Whether a stop has begun in this sandbox.
    was_stopped: bool,
    /// T5: when every planned program must have been killed.
    kill_by: Option<PodTime>,
    /// T5: the earliest end of the budget of a stop that the pod begins itself (J1, I2).
    own_budget: Option<PodTime>,
    now: PodTime,
}

impl Invariants {
    /// J10: under OnFailure a stop after which the pod goes on shows no 0, and the end of a job shows only 0; an interrupted init
    /// never shows 0 elsewhere (I4).
    fn may_show_for_policy(&self, id: &ContainerId, shown: Exit, real: Exit) -> bool {
        let Some(container) = self.containers.get(id) else { return false };
        let as_stopped = real.code == 0 && shown.code == 143;
        if container.role == Some(Role::Init) && container.interrupted && as_stopped {
            return true;
        }
        self.policy() == Some(RestartPolicy::OnFailure)
            && match container.role {
                Some(Role::Sidecar) => as_stopped,
                // R7: or it was about to be restarted.
                Some(Role::Main) => {
                    let restarts =
                        self.member(&container.name).is_some_and(|member| member.restart.is_some());
                    as_stopped && self.stopping && (container.interrupted || restarts)
                }
                Some(Role::Init) => shown.code == 0 && self.stopping,
                None => false,
            }
    }

    fn defaults(&self) -> Defaults {
        self.plan.as_ref().map(|plan| plan.settings.defaults).unwrap_or_default()
    }

    pub(crate) fn new(plan: Option<Plan>) -> Self {
        let members = plan.iter().flat_map(|plan| &plan.members);
        Self {
            members: members.map(|m| (m.name.clone(), MemberPicture::default())).collect(),
            plan,
            containers: BTreeMap::new(),
            requests: BTreeMap::new(),
            answered: BTreeSet::new(),
            deleted: BTreeMap::new(),
            operations: BTreeMap::new(),
            last_op: 0,
            creating: BTreeMap::new(),
            asking: None,
            stop_asked: BTreeSet::new(),
            asked: BTreeSet::new(),
            sandbox_gone: false,
            stopping: false,
            restarting: false,
            was_stopped: false,
            kill_by: None,
            own_budget: None,
            now: PodTime::ZERO,
        }
    }

    fn violated(&self, what: impl Into<String>) -> Verdict {
        Err(Violation { now: self.now, what: what.into() })
    }

    /// Notes what is about to be handled.
    pub(crate) fn event(&mut self, now: PodTime, event: &Event) -> Verdict {
        self.now = now;
        self.asking = None;
        match event {
            Event::Request { id, request } => {
                self.requests.insert(*id, request.clone());
                self.asking = Some(request.clone());
                self.asked(*id, request);
            }
            Event::Done { op, outcome, .. } => self.done(*op, outcome),
            Event::Exited { target, exit } => self.exited(target, *exit),
            Event::StopPod { grace } => {
                self.must_end_within(grace.unwrap_or_else(|| self.pod_grace()) + MIN_KILL_DELAY)
            }
            Event::Abandoned { id } => drop(self.requests.remove(id)),
            Event::OutOfMemory { .. } | Event::Tick => {}
        }
        Ok(())
    }

    fn asked(&mut self, id: RequestId, request: &Request) {
        match request {
            Request::Create { container, spec } if !self.containers.contains_key(container) => {
                let role = self.role_of(spec);
                self.deleted.remove(container);
                if role.is_some() {
                    // Members by `*=main` have no name before.
                    let is_job = self.policy().is_some_and(|policy| policy != RestartPolicy::Always);
                    let now = self.now;
                    let picture = self.members.entry(spec.name.clone()).or_default();
                    // J11: kept until it runs again, unless its caller has stopped it and recreates it (T15).
                    picture.done_from = picture.done_from.filter(|from| is_job && *from <= now);
                }
                self.containers.insert(container.clone(), Container::new(spec, role));
                self.creating.insert(id, container.clone());
            }
            Request::Kill { target: Target { container, exec: None }, signal, .. } => {
                let is_sandbox = self.containers.get(container).is_some_and(|c| c.kind == TaskKind::Sandbox);
                if is_sandbox && self.plan.is_some() && self.means_stop(container, *signal) {
                    self.must_end_within(MIN_KILL_DELAY);
                }
                self.may_be_hurried(container, *signal);
            }
            _ => {}
        }
    }

    fn policy(&self) -> Option<RestartPolicy> {
        self.plan.as_ref().map(|plan| plan.settings.restart_policy)
    }

    fn must_end_within(&mut self, time: Duration) {
        let by = self.now + time;
        self.kill_by = Some(self.kill_by.map_or(by, |earlier| earlier.min(by)));
    }

    fn pod_grace(&self) -> Duration {
        let own = self.plan.as_ref().and_then(|plan| plan.settings.grace);
        let kubelet = self.containers.values().filter_map(|c| c.kubelet_grace).max();
        own.or(kubelet).unwrap_or(Duration::from_secs(30))
    }

    fn done(&mut self, op: OpId, outcome: &Outcome) {
        let Some((id, operation, incarnation)) = self.operations.remove(&op) else { return };
        let Some(container) = self.containers.get_mut(&id) else { return };
        match (&operation, outcome) {
            (Operation::Create | Operation::Recreate, Outcome::Process { pid }) => {
                container.new_incarnation(*pid);
            }
            (Operation::Restore, Outcome::Process { pid }) => {
                container.new_incarnation(*pid);
                container.begun = true;
            }
            (Operation::Start, Outcome::Failed(_)) => container.start_failed(),
            (Operation::Start, _) => {
                container.begun = true;
                container.begun_at = self.now;
                if let Some(picture) = self.members.get_mut(&container.name) {
                    picture.done_from = None;
                }
                self.completed(&id);
                self.gate_checked(&id, &operation, outcome);
            }
            (Operation::RunHook { .. }, _) if container.incarnation == incarnation => container.hook = None,
            // An exit does not wait for a hook that outlives its container.
            (Operation::KillRemaining, Outcome::Failed(_)) => container.hook = None,
            (Operation::Check(_), _) if container.incarnation == incarnation => {
                self.gate_checked(&id, &operation, outcome);
            }
            (Operation::Create | Operation::PrepareRestore, Outcome::Failed(_)) => {
                drop(self.containers.remove(&id))
            }
            _ => {}
        }
    }

    /// Opens a gate when the plan says so.
    fn gate_checked(&mut self, id: &ContainerId, operation: &Operation, outcome: &Outcome) {
        let Some(name) = self.containers.get(id).map(|container| container.name.clone()) else { return };
        let Some(gate) = self.member(&name).map(|member| member.gate.clone()) else { return };
        let Some(picture) = self.members.get_mut(&name) else { return };
        let succeeded = !matches!(outcome, Outcome::Failed(_));
        match (operation, &gate) {
            (Operation::Start, Gate::Skip) => picture.opens(),
            (Operation::Check(Check::Executed { .. }), _) if succeeded => {
                picture.executed = true;
                if gate == Gate::Running {
                    picture.opens();
                }
            }
            (Operation::Check(Check::Probe { .. }), Gate::Probe { timing, .. }) => {
                if succeeded {
                    picture.check_succeeded()
                } else {
                    picture.check_failed()
                }
                if picture.successes >= timing.successes {
                    picture.opens();
                }
                if let Some(container) = self.containers.get_mut(id) {
                    container.gate_failed |= picture.failures >= timing.failures;
                }
            }
            _ => {}
        }
    }

    fn exited(&mut self, target: &Target, exit: Exit) {
        let Some(container) = self.containers.get_mut(&target.container) else { return };
        if target.exec.is_some() {
            return;
        }
        container.last_exit = Some(exit);
        if container.begun && self.now.since(container.begun_at) >= GOOD_RUN {
            container.restarts = 0;
        }
        container.exited_in_program = matches!(container.process, Process::Program { .. });
        container.process = Process::None;
        let is_sandbox = container.kind == TaskKind::Sandbox;
        // U1: only a program exits with 0, seen or unseen.
        let was_executed = container.exited_in_program && exit.code == 0;
        let name = container.name.clone();
        let bare = self.member(&name).is_some_and(|member| member.gate == Gate::Running);
        if let Some(picture) = self.members.get_mut(&name) {
            picture.counted_from_zero();
            picture.executed |= was_executed;
            if bare && was_executed {
                picture.opens();
            }
        }
        self.completed(&target.container);
        if is_sandbox && self.plan.is_some() {
            self.sandbox_gone = true;
            self.must_end_within(MIN_KILL_DELAY);
        }
    }

    /// I4: an init whose started program exited with 0 has completed, unless it was interrupted.
    fn completed(&mut self, id: &ContainerId) {
        let Some(container) = self.containers.get(id) else { return };
        let zero = container.last_exit.is_some_and(|exit| exit.code == 0);
        let is_own = container.begun && container.exited_in_program && !container.interrupted;
        if container.role == Some(Role::Init) && is_own && zero {
            let name = container.name.clone();
            self.members.entry(name).or_default().completed = true;
        }
    }

    /// Checks what the pod wants done.
    pub(crate) fn action(&mut self, now: PodTime, action: &Action) -> Verdict {
        self.now = now;
        match action {
            Action::Run { op, container, operation } => {
                if op.0 <= self.last_op {
                    return self.violated(format!("operation id {} is used twice", op.0));
                }
                self.last_op = op.0;
                self.may_run(container, operation)?;
                let incarnation = self.containers.get(container).map_or(0, |c| c.incarnation);
                self.operations.insert(*op, (container.clone(), operation.clone(), incarnation));
                Ok(())
            }
            Action::Signal { target, signal, .. } if target.exec.is_none() => {
                self.may_signal(&target.container, *signal)
            }
            Action::GiveUp { container, .. } => {
                if let Some(container) = self.containers.get_mut(container) {
                    container.is_abandoned = true;
                }
                Ok(())
            }
            Action::Note(line) => self.noted(line),
            Action::Warn(line) if line == UNSETTLED => self.violated(UNSETTLED),
            Action::Reply { request, result } => self.replied(*request, result.as_ref().ok()),
            Action::Publish(notice) => self.published(notice),
            Action::Finish { container, shown, real } => self.finished(container, *shown, *real),
            Action::LimitOomScore { container, highest } => self.limited(container, *highest),
            _ => Ok(()),
        }
    }

    fn replied(&mut self, id: RequestId, reply: Option<&Reply>) -> Verdict {
        if !self.answered.insert(id) {
            return self.violated(format!("request {} is answered twice", id.0));
        }
        let Some(request) = self.requests.remove(&id) else {
            return self.violated(format!("request {} was never made", id.0));
        };
        let created = self.creating.remove(&id);
        match (&request, reply) {
            // Refused or failed: it never existed.
            (Request::Create { .. }, None) => {
                if let Some(container) = created {
                    self.containers.remove(&container);
                }
                Ok(())
            }
            (Request::Wait(target), Some(Reply::Exit(exit))) => self.agrees(target, *exit, "Wait"),
            (Request::Delete(target), Some(Reply::Deleted(deleted))) => {
                self.agrees(target, deleted.exit, "Delete")
            }
            (Request::Kill { target: Target { container, exec: None }, signal, .. }, Some(_)) => {
                self.kill_accepted(&container.clone(), *signal);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Masked codes are the same wherever they are shown (F6).
    fn agrees(&self, target: &Target, exit: Exit, whence: &str) -> Verdict {
        let shown = self.containers.get(&target.container).and_then(|c| match &target.exec {
            None => c.shown,
            Some(exec) => c.execs.get(exec).and_then(|exec| exec.exited),
        });
        let shown = shown.or(self.deleted.get(&target.container).copied().filter(|_| target.exec.is_none()));
        match shown {
            Some(shown) if shown != exit => self.violated(format!(
                "{whence} of {target} says {}, its TaskExit said {}",
                exit.code, shown.code
            )),
            _ => Ok(()),
        }
    }

    fn published(&mut self, notice: &Notice) -> Verdict {
        match notice {
            Notice::Started { container, pid } => {
                let Some(state) = self.containers.get_mut(container) else { return Ok(()) };
                let late = state.shown.is_some();
                state.started = true;
                state.view_pid = *pid;
                if late {
                    return self.violated(format!("TaskStart of {container} after its TaskExit"));
                }
                Ok(())
            }
            Notice::ExecStarted { container, exec, .. } => {
                let Some(state) = self.containers.get_mut(container) else { return Ok(()) };
                state.execs.entry(exec.clone()).or_default().started = true;
                Ok(())
            }
            Notice::Exited { target, exit, .. } => self.exit_published(target, *exit),
            Notice::Deleted { container, deleted } => {
                self.agrees(&Target::init(container.clone()), deleted.exit, "TaskDelete")?;
                if let Some(shown) = self.containers.remove(container).and_then(|container| container.shown) {
                    self.deleted.insert(container.clone(), shown);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn exit_published(&mut self, target: &Target, exit: Exit) -> Verdict {
        let Some(state) = self.containers.get_mut(&target.container) else {
            return self.violated(format!("TaskExit of {target}, which is not there"));
        };
        if state.shown.is_some() {
            return self.violated(format!("TaskExit of {target} after the container's own TaskExit"));
        }
        match &target.exec {
            None => {
                state.shown = Some(exit);
                state.held = None;
                if let Some(hook) = state.hook {
                    return self.violated(format!("TaskExit of {target} before the end of its {hook} hook"));
                }
                let running = matches!(state.process, Process::Program { .. });
                let unfinished = state.execs.iter().find(|(_, exec)| exec.started && exec.exited.is_none());
                if let Some(exec) = unfinished.map(|(id, _)| id.clone()) {
                    return self.violated(format!("TaskExit of {target} before the one of its exec {exec}"));
                }
                if running {
                    return self.violated(format!("TaskExit of {target}, whose program runs"));
                }
                Ok(())
            }
            Some(exec) => {
                let record = state.execs.entry(exec.clone()).or_default();
                record.exited = Some(exit);
                if !record.started {
                    return self.violated(format!("TaskExit of {target} before its TaskExecStarted"));
                }
                Ok(())
            }
        }
    }

    fn finished(&mut self, id: &ContainerId, shown: Exit, real: Exit) -> Verdict {
        self.agrees(&Target::init(id.clone()), shown, "Finish")?;
        let now = self.now;
        let lone_until = now + self.defaults().replace_wait;
        if let Some(container) = self.containers.get(id).filter(|container| container.role.is_some()) {
            let in_stop = self.stopping && !self.asked.contains(&container.name);
            let alone = !self.stopping && self.asked.contains(&container.name);
            let done = container.role == Some(Role::Main) && shown.code == 0 && container.has_run;
            // J11: a container that never ran does not undo an earlier end.
            let kept = !container.has_run && self.policy() != Some(RestartPolicy::Always);
            if let Some(picture) = self.members.get_mut(&container.name) {
                picture.ended_at = Some(now);
                picture.ended_with_pod = in_stop;
                let from = done.then_some(if alone { lone_until } else { now });
                picture.done_from = if kept { picture.done_from } else { from };
            }
        }
        let sidecar = self.containers.get(id).filter(|container| container.role == Some(Role::Sidecar));
        // R4: under Never the pod goes on without a sidecar that is not restarted.
        let given_up = sidecar.filter(|container| {
            let asked = container.caller_killed || container.held.is_some();
            self.policy() == Some(RestartPolicy::Never) && !self.stopping && !asked
        });
        let given_up = given_up.map(|container| container.name.clone());
        let sidecar = sidecar.is_some();
        if let Some(picture) = given_up.and_then(|name| self.members.get_mut(&name)) {
            picture.opens();
            // Nor is it waited for in a later round.
            picture.ended_with_pod = true;
        }
        self.may_show(id, real)?;
        // T10: the program of a start that was given up never ran for podshim.
        let is_abandoned = self.containers.get(id).is_some_and(|container| container.is_abandoned);
        let masked =
            (sidecar && shown.code == 0) || is_abandoned || self.may_show_for_policy(id, shown, real);
        if shown != real && !masked {
            return self.violated(format!("{id} is shown with {}, but it was {}", shown.code, real.code));
        }
        Ok(())
    }

    /// Checks everything that must hold between two events.
    pub(crate) fn check(&mut self, now: PodTime, pod: &Pod) -> Verdict {
        self.now = now;
        if pod.is_stopping() != self.stopping || pod.is_restarting() != self.restarting {
            return self.violated("a stop began or ended and was not reported");
        }
        for id in self.containers.keys() {
            self.check_view(id, pod)?;
            self.check_held(id)?;
        }
        self.check_oom_scores()?;
        self.check_budget()
    }

    /// F11, F13: a container that was started and is not final is RUNNING, with the pid of a live process.
    fn check_view(&self, id: &ContainerId, pod: &Pod) -> Verdict {
        let state = &self.containers[id];
        let Ok(view) = pod.view(&Target::init(id.clone())) else { return Ok(()) };
        if let Some(shown) = state.shown {
            let agrees = view.exit == Some(shown) && view.status == Status::Stopped;
            return if agrees { Ok(()) } else { self.violated(format!("{id} has exited, State differs")) };
        }
        if !state.started {
            return Ok(());
        }
        if !matches!(view.status, Status::Running | Status::Paused) {
            return self.violated(format!("{id} is not final and shown as {:?}", view.status));
        }
        let alive = self.containers.values().any(|other| other.pid() == Some(view.pid));
        let anyone = self.containers.values().any(Container::runs_program);
        if anyone && !alive {
            return self.violated(format!("{id} is shown with pid {}, which is dead (F13)", view.pid));
        }
        Ok(())
    }

    fn means_stop(&self, id: &ContainerId, signal: Signal) -> bool {
        let Some(container) = self.containers.get(id) else { return false };
        let named = self.member(&container.name).and_then(|member| member.stop_signal);
        container.means_stop(signal, named)
    }
}
