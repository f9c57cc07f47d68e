//! The promises of the core, checked from outside after every step.
//!
//! Owns its own small picture of the pod, drawn from events and actions alone, and a reading of the rules of its own
//! (`stops`): it takes no fact from what the core says of itself (its notes, its record, `inspect`), and judges what
//! callers see of it (`view`, whether the pod is stopping).

mod answers;
mod consequences;
mod hooks;
mod kubelets_own;
mod oom_score;
mod order;
mod picture;
mod restarts;
mod rounds;
mod shares;
mod stop;
mod stops;
mod times;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pod_lifecycle::{
    Action, Check, ContainerId, Event, Exit, Hook, OpId, Operation, Outcome, Pod, PodTime, Request,
    RequestId, Target, TaskKind, UNSETTLED,
};
use pod_spec::{Defaults, Gate, Plan, RestartPolicy, Role, Signal};

use picture::{Container, MemberPicture, Process};
use stop::{Cause, Making, Steps, Stop};

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
    /// S15: what the pod's object has of init and ephemeral containers.
    facts: BTreeSet<String>,
    /// The newest container of each member, until it is deleted.
    newest: BTreeMap<String, ContainerId>,
    /// The names of which a container was created in this sandbox.
    known: BTreeSet<String>,
    sandbox_gone: bool,
    /// The stop under way.
    stop: Option<Stop>,
    /// When a caller last began to create a planned container (I8).
    last_create: PodTime,
    /// The stops of containers of which it is not decided what they are.
    making: Option<Making>,
    /// Whether everything that has happened is in the reading of the stops.
    is_read: bool,
    /// R14: whether the pod has restarted as a whole, which is not in the reading.
    pod_restarts: bool,
    /// How many steps of a stop follow each container (T19).
    steps: Steps,
    /// How many stops are over.
    rounds: u32,
    /// J11: until then a container that was created again may be the first of another round.
    another_until: Option<PodTime>,
    /// I2, R9: whose end has failed the pod.
    failed: Option<String>,
    /// Whether a stop has begun in this sandbox.
    was_stopped: bool,
    now: PodTime,
    /// How many events there were.
    event: u64,
}

impl Invariants {
    fn defaults(&self) -> Defaults {
        self.plan.as_ref().map(|plan| plan.settings.defaults).unwrap_or_default()
    }

    pub(crate) fn new(plan: Option<Plan>) -> Self {
        Self { steps: Self::count_steps(&plan), ..Self::without_steps(plan) }
    }

    fn without_steps(plan: Option<Plan>) -> Self {
        let members = plan.iter().flat_map(|plan| &plan.members);
        Self {
            members: members.map(|m| (m.name.clone(), MemberPicture::of(m.role))).collect(),
            plan,
            containers: BTreeMap::new(),
            requests: BTreeMap::new(),
            answered: BTreeSet::new(),
            deleted: BTreeMap::new(),
            operations: BTreeMap::new(),
            last_op: 0,
            creating: BTreeMap::new(),
            asking: None,
            facts: BTreeSet::new(),
            newest: BTreeMap::new(),
            known: BTreeSet::new(),
            sandbox_gone: false,
            stop: None,
            last_create: PodTime::ZERO,
            making: None,
            is_read: true,
            pod_restarts: false,
            steps: Steps::default(),
            rounds: 0,
            another_until: None,
            failed: None,
            was_stopped: false,
            now: PodTime::ZERO,
            event: 0,
        }
    }

    fn violated(&self, what: impl Into<String>) -> Verdict {
        Err(Violation { now: self.now, what: what.into() })
    }

    /// Notes what is about to be handled.
    pub(crate) fn event(&mut self, now: PodTime, event: &Event) -> Verdict {
        self.now = now;
        self.event += 1;
        self.asking = None;
        if self.is_read {
            self.judge_the_making();
        }
        match event {
            Event::Request { id, request } => {
                self.requests.insert(*id, request.clone());
                self.asking = Some(request.clone());
                self.asked(*id, request);
            }
            Event::Done { op, outcome, .. } => self.done(*op, outcome),
            Event::Exited { target, exit } => self.exited(target, *exit),
            Event::StopPod { grace } => {
                // T5: `grace` limits the operator's figure.
                let own = self.plan.as_ref().and_then(|plan| plan.settings.grace).unwrap_or(Duration::MAX);
                let grace = grace.unwrap_or_else(|| self.pod_grace()).min(own);
                self.begin_stop_within(Cause::Requested, Some(self.now + grace));
            }
            Event::Abandoned { id } => drop(self.requests.remove(id)),
            // T15, J11: what waits for a time.
            Event::Tick if self.is_read && self.may_be_lost() => self.leaves_the_reading(),
            Event::Tick if self.is_read => self.read_begin(),
            Event::OutOfMemory { .. } | Event::Tick => {}
        }
        Ok(())
    }

    fn asked(&mut self, id: RequestId, request: &Request) {
        match request {
            Request::Create { container, spec } if !self.containers.contains_key(container) => {
                let role = self.role_of(spec);
                self.deleted.remove(container);
                // A check of a deleted one of this id is no answer for the new one.
                let is_another = |of: &ContainerId, operation: &Operation| {
                    of != container || !matches!(operation, Operation::Check(_))
                };
                self.operations.retain(|_, (of, operation, _)| is_another(of, operation));
                self.containers.insert(container.clone(), Container::new(spec, role));
                self.creating.insert(id, container.clone());
            }
            Request::Kill { target: Target { container, exec: None }, signal, .. } => {
                self.asked_for_end(container, *signal);
            }
            Request::Restart if self.stop.is_none() => self.restarts_the_pod(),
            _ => {}
        }
    }

    /// A request that stops something, if it is served.
    fn asked_for_end(&mut self, id: &ContainerId, signal: Signal) {
        let Some(container) = self.containers.get(id) else { return };
        let is_gone = container.shown.is_some() || !container.is_created || self.is_being_removed(id);
        if is_gone || !self.means_stop(id, signal) {
            return;
        }
        if container.kind == TaskKind::Sandbox {
            if self.plan.is_some() && container.process != Process::None {
                self.begin_stop(Cause::Sandbox);
            }
            return;
        }
        let is_undone = signal == Signal::KILL && !container.started;
        let starts = container.runs_program() || container.is_starting;
        // What is restarted in place is still there for its caller.
        let is_over = (container.is_draining() || self.is_being_cleared(id))
            && (container.is_ended_for_good()
                || !container.last_exit.is_some_and(|exit| self.is_restarted_after(container, exit.code)));
        let counts = container.role.is_some() && !is_undone && !is_over;
        if is_undone && starts {
            // Its Start was not answered: its caller takes it back.
            self.leaves_the_reading();
        }
        if counts {
            self.asks_for_end(id, signal);
        }
    }

    fn policy(&self) -> Option<RestartPolicy> {
        self.plan.as_ref().map(|plan| plan.settings.restart_policy)
    }

    fn pod_grace(&self) -> Duration {
        let own = self.plan.as_ref().and_then(|plan| plan.settings.grace);
        own.or_else(|| self.kubelet_grace()).unwrap_or(Duration::from_secs(30))
    }

    fn kubelet_grace(&self) -> Option<Duration> {
        self.containers.values().filter_map(|c| c.kubelet_grace).max()
    }

    fn done(&mut self, op: OpId, outcome: &Outcome) {
        let Some((id, operation, incarnation)) = self.operations.remove(&op) else { return };
        let Some(container) = self.containers.get_mut(&id) else { return };
        let is_planned = container.role.is_some();
        match (&operation, outcome) {
            (Operation::Create | Operation::Recreate, Outcome::Process { pid }) => {
                container.new_incarnation(*pid);
                container.held_since = self.now;
            }
            (Operation::CreateCompleted, Outcome::Ok) => container.is_created = true,
            (Operation::Restore, Outcome::Process { pid }) => {
                container.new_incarnation(*pid);
                container.process = Process::Program { pid: *pid };
                container.begun = true;
            }
            (Operation::Start, Outcome::Failed(_)) => {
                container.start_failed();
                if is_planned {
                    self.leaves_the_reading();
                }
                self.completed(&id);
            }
            (Operation::Start, _) => {
                container.begins(self.now);
                let is_main = container.role == Some(Role::Main);
                if let Some(picture) = self.members.get_mut(&container.name).filter(|_| is_planned) {
                    picture.end = None;
                }
                if is_main {
                    self.another_until = None;
                }
                self.completed(&id);
                self.gate_checked(&id, &operation, outcome);
                self.executed_by_its_end(&id);
            }
            (Operation::RunHook { hook, .. }, _) if container.incarnation == incarnation => {
                container.hook = None;
                if *hook == Hook::Migrate {
                    container.migrated = Some(*outcome == Outcome::Ok);
                } else {
                    self.hook_ended(&id);
                }
            }
            // An exit does not wait for a hook that outlives its container.
            (Operation::KillRemaining, Outcome::Failed(_)) => container.hook = None,
            // What was asked of a container that has ended says nothing of the next one.
            (Operation::Check(_), _) if container.incarnation == incarnation && container.shown.is_none() => {
                self.gate_checked(&id, &operation, outcome);
            }
            (Operation::Recreate, Outcome::Failed(_)) => self.leaves_the_reading(),
            (
                Operation::Create | Operation::PrepareRestore | Operation::CreateCompleted,
                Outcome::Failed(_),
            ) => {
                drop(self.containers.remove(&id));
                if is_planned {
                    self.leaves_the_reading();
                }
            }
            (Operation::Remove, Outcome::Ok) if is_planned && container.shown.is_none() => {
                self.leaves_the_reading();
            }
            _ => {}
        }
    }

    /// Opens a gate when the plan says so.
    fn gate_checked(&mut self, id: &ContainerId, operation: &Operation, outcome: &Outcome) {
        let Some(name) = self.containers.get(id).map(|container| container.name.clone()) else { return };
        let Some(gate) = self.member(&name).map(|member| member.gate.clone()) else { return };
        // H8, U4, U11: no gate opens once its container is to end, or its pod.
        let container = &self.containers[id];
        let is_sidecar = container.role == Some(Role::Sidecar);
        let is_asked = container.caller_killed || !is_sidecar && container.asked_ever;
        let is_to_end =
            is_asked || container.killed || container.gate_failed || self.is_interrupted(container);
        if self.is_stopping() || is_to_end || self.is_judged_alone(container) {
            return;
        }
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
                    container.gate_failed |= is_sidecar && picture.failures >= timing.failures;
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
        container.has_just_ended = container.exited_in_program;
        container.process = Process::None;
        let is_sandbox = container.kind == TaskKind::Sandbox;
        let (name, is_starting) = (container.name.clone(), container.is_starting);
        if let Some(picture) = self.members.get_mut(&name) {
            picture.counted_from_zero();
        }
        if !is_starting {
            self.executed_by_its_end(&target.container);
        }
        self.completed(&target.container);
        let container = &self.containers[&target.container];
        if self.may_restart_the_pod(container, exit.code) {
            self.restarts_the_pod();
        }
        if is_sandbox && self.plan.is_some() {
            self.sandbox_gone = true;
        }
    }

    /// U1: only a program exits with 0, seen or unseen.
    fn executed_by_its_end(&mut self, id: &ContainerId) {
        let Some(container) = self.containers.get(id) else { return };
        let was_executed =
            container.exited_in_program && container.last_exit.is_some_and(|exit| exit.code == 0);
        let name = container.name.clone();
        // H8: it was not asked any more, so that podshim may not know.
        let is_unsure = self.is_interrupted(container) || container.killed || container.asked_ever;
        if self.is_stopping() {
            return;
        }
        let bare = self.member(&name).is_some_and(|member| member.gate == Gate::Running);
        let Some(picture) = self.members.get_mut(&name).filter(|_| was_executed) else { return };
        if is_unsure {
            (picture.maybe_executed, picture.maybe_open) = (true, picture.maybe_open || bare);
        } else {
            picture.executed = true;
            if bare {
                picture.opens();
            }
        }
    }

    /// Whether the end of its program had begun. Where the end of a stop is not read, a hook may be one of a round before.
    fn is_interrupted(&self, container: &Container) -> bool {
        container.interrupted && (self.is_read || container.stop_signals > 0)
    }

    fn restarts_the_pod(&mut self) {
        self.pod_restarts = true;
        self.leaves_the_reading();
    }

    /// I4: an init whose started program exited with 0 has completed, unless it was interrupted.
    fn completed(&mut self, id: &ContainerId) {
        let Some(container) = self.containers.get(id) else { return };
        let zero = container.last_exit.is_some_and(|exit| exit.code == 0);
        let is_own = container.begun && container.exited_in_program && !self.is_interrupted(container);
        if container.role == Some(Role::Init) && is_own && zero {
            let name = container.name.clone();
            self.members.entry(name).or_default().completed = true;
            // J11: the mains of another round may still come.
            let until = self.now + self.defaults().replace_wait;
            self.another_until = self.another_until.map(|_| until);
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
            Action::GiveUp { op, container } => {
                let is_start = self.operations.get(op).is_some_and(|(_, it, _)| *it == Operation::Start);
                if let Some(container) = self.containers.get_mut(container).filter(|_| is_start) {
                    container.is_given_up = true;
                }
                Ok(())
            }
            Action::Warn(line) if line == UNSETTLED => self.violated(UNSETTLED),
            Action::Reply { request, result } => self.replied(*request, result.as_ref().ok()),
            Action::Publish(notice) => self.published(notice),
            Action::Finish { container, shown, real } => self.finished(container, *shown, *real),
            Action::LimitOomScore { container, highest } => self.limited(container, *highest),
            _ => Ok(()),
        }
    }

    /// Checks everything that must hold between two events.
    pub(crate) fn check(&mut self, now: PodTime, pod: &Pod) -> Verdict {
        self.now = now;
        self.note_last_signals();
        self.note_given_up();
        if self.is_read && self.may_be_lost() {
            self.leaves_the_reading();
        }
        if self.is_read {
            self.read_stops();
        }
        // I8: also because a stop is over.
        self.note_given_up();
        if self.is_read && self.may_be_lost() {
            self.leaves_the_reading();
        }
        self.check_kubelets_own()?;
        self.note_turns();
        self.note_passed_turns();
        if self.is_read && pod.is_stopping() != self.stop.is_some() {
            let what = if pod.is_stopping() { "stops" } else { "does not stop" };
            return self.violated(format!("the pod {what}, and the rules have {:?} (T12, T14)", self.stop));
        }
        for id in self.containers.keys() {
            self.check_view(id, pod)?;
            self.check_held(id)?;
        }
        if self.is_read && self.plan.is_some() {
            self.check_consequences()?;
            self.check_times()?;
        }
        self.check_ends()?;
        self.check_oom_scores()?;
        self.check_budget()
    }

    fn means_stop(&self, id: &ContainerId, signal: Signal) -> bool {
        let Some(container) = self.containers.get(id) else { return false };
        let named = self.member(&container.name).and_then(|member| member.stop_signal);
        // V2: what is held as the standby has no past.
        let stands_by = self.partner(&container.name).is_some() && container.is_held();
        container.means_stop(signal, named, container.ran && !stands_by)
    }
}
