//! The pod value: its tables, the single entry point `handle`, and the rules applied after every event.
//!
//! Handlers of single events change the tables and never look ahead. `settle` then applies the level-triggered rules
//! (which container may start, whose turn has come, what is due, what is complete) until nothing changes. So a rule
//! holds in whatever order the events came.

use std::collections::{BTreeMap, VecDeque};

use pod_spec::{Gate, GateAction, Others, Plan, RestartPolicy};

use crate::action::{Action, OpId, Operation, Refusal, Reply};
use crate::container::{Container, Freezer, Part, Phase, Status, View};
use crate::event::{ContainerId, ContainerSpec, Event, Exit, Outcome, Request, RequestId, Target, TaskKind};
use crate::member::{GateState, MemberState};
use crate::shutdown::Stop;
use crate::startup::PodFailure;
use crate::time::PodTime;

/// More passes than the rules of any pod need after one event.
const MOST_ROUNDS: usize = 10_000;
/// What [`Action::Warn`] says when the rules contradict each other.
pub const UNSETTLED: &str = "the rules of the pod do not settle: this is a fault of podshim";

/// A pod.
#[derive(Clone, Debug)]
pub struct Pod {
    pub(crate) plan: Option<Plan>,
    pub(crate) members: Vec<MemberState>,
    pub(crate) containers: BTreeMap<ContainerId, Container>,
    pub(crate) sandbox: Option<ContainerId>,
    /// The stop under way, if one is.
    pub(crate) stop: Option<Stop>,
    /// K16: the pause process is gone, its namespaces with it.
    pub(crate) sandbox_gone: bool,
    /// I2: why no container starts any more.
    pub(crate) failure: Option<PodFailure>,
    /// How many stops are over (T14).
    pub(crate) round: u32,
    /// J11: until then a container that was created again may be the first of another round.
    pub(crate) another_round_until: Option<PodTime>,
    /// I8: until then the caller may still be creating containers. Each Create moves it `replace-wait` ahead.
    pub(crate) create_quiet_until: PodTime,
    pub(crate) now: PodTime,
    actions: VecDeque<Action>,
    next_op: u64,
    /// Counts changes, so that `settle` knows when the rules have nothing more to say.
    changes: u64,
}

impl Default for Pod {
    fn default() -> Self {
        Self::new()
    }
}

impl Pod {
    /// A pod without containers.
    pub fn new() -> Self {
        Self {
            plan: None,
            members: Vec::new(),
            containers: BTreeMap::new(),
            sandbox: None,
            stop: None,
            sandbox_gone: false,
            failure: None,
            round: 0,
            another_round_until: None,
            create_quiet_until: PodTime::ZERO,
            now: PodTime::ZERO,
            actions: VecDeque::new(),
            next_op: 0,
            changes: 0,
        }
    }

    /// Takes one event. Total: a request that cannot be served is answered with a refusal.
    pub fn handle(&mut self, now: PodTime, event: Event) {
        self.now = self.now.max(now);
        match event {
            Event::Request { id, request } => self.request(id, request),
            Event::Abandoned { id } => self.forget_waiter(id),
            Event::Done { op, outcome, at } => self.done(op, outcome, Exit { code: 0, at }),
            Event::Exited { target: Target { container, exec: None }, exit } => self.exited(container, exit),
            Event::Exited { target: Target { container, exec: Some(exec) }, exit } => {
                self.exec_exited(container, exec, exit);
            }
            Event::OutOfMemory { container } => self.out_of_memory(container),
            Event::StopPod { grace } => self.stop_pod(grace),
            Event::Tick => {}
        }
        self.settle();
    }

    /// The next action; call until `None` after each [`Pod::handle`].
    #[must_use]
    pub fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// When to call `handle` again at the latest; `None` when nothing is pending. Each `handle` may change it.
    pub fn next_deadline(&self) -> Option<PodTime> {
        self.containers
            .values()
            .flat_map(|container| self.container_deadlines(container))
            .chain(self.stop_deadlines())
            .chain(self.replacement_deadlines())
            .flatten()
            .min()
    }

    /// What callers see of a container or exec.
    ///
    /// # Errors
    /// NotFound for a container or exec that does not exist or is still being created.
    pub fn view(&self, target: &Target) -> Result<View, Refusal> {
        let view = self.containers.get(&target.container).and_then(|container| match &target.exec {
            None => container.view(self.anchor_pid()),
            Some(exec) => {
                let mut view = container.execs.get(exec)?.view();
                // The freezer stops execs too, and the runc shim reports each of them as paused.
                if container.view(self.anchor_pid()).is_some_and(|own| own.status == Status::Paused) {
                    view.status = Status::Paused;
                }
                Some(view)
            }
        });
        view.ok_or_else(|| Refusal::not_found(format!("{target} not found")))
    }

    /// The containers that exist or are being created.
    pub fn containers(&self) -> impl Iterator<Item = &ContainerId> {
        self.containers.keys()
    }

    /// Whether the shim has nothing left to serve.
    pub fn is_empty(&self) -> bool {
        self.containers.is_empty()
    }

    /// Whether every container that is left is being deleted, or will be deleted once its create has ended.
    pub fn is_leaving(&self) -> bool {
        self.containers.values().all(|container| match &container.phase {
            Phase::Removing { .. } => true,
            Phase::Creating { deletes, .. } => !deletes.is_empty(),
            _ => false,
        })
    }

    /// Whether nothing is left to do: every container's exit is shown, and no delete is under way.
    pub fn is_final(&self) -> bool {
        self.containers.values().all(|container| matches!(container.phase, Phase::Stopped { .. }))
    }

    /// Whether the pod's plan, or that it has none, is settled, so that later containers cannot change it.
    pub fn plan_is_settled(&self) -> bool {
        self.plan.is_some() || self.sandbox.is_some()
    }

    /// Whether a stop of the pod is under way (T12). A stop for good stays so.
    pub fn is_stopping(&self) -> bool {
        self.stop.is_some()
    }

    /// Why a container is held, in words for people; `None` if it is not held.
    pub fn hold_reason(&self, id: &ContainerId) -> Option<String> {
        let container = self.containers.get(id)?;
        matches!(container.phase, Phase::Held(_)).then(|| self.blocker(container))?
    }

    /// What opens a container's gate while it is closed (U2, U3): for a driver that must listen from the first moment
    /// of a process.
    pub fn closed_gate(&self, id: &ContainerId) -> Option<&GateAction> {
        let state = &self.members[self.containers.get(id)?.member()?];
        match &state.member.gate {
            Gate::Probe { action, .. } if state.gate != GateState::Open => Some(action),
            _ => None,
        }
    }

    fn request(&mut self, id: RequestId, request: Request) {
        match request {
            Request::Create { container, spec } => self.create(id, container, *spec),
            Request::Exec { container, exec } => self.add_exec(id, container, exec),
            Request::Start(Target { container, exec: None }) => self.start(id, container),
            Request::Start(Target { container, exec: Some(exec) }) => self.start_exec(id, container, exec),
            Request::Kill { target: Target { container, exec: None }, signal, reach } => {
                self.kill(id, container, signal, reach);
            }
            Request::Kill { target, signal, .. } => self.kill_exec(id, target, signal),
            Request::Wait(target) => self.wait(id, target),
            Request::Delete(Target { container, exec: None }) => self.delete(id, container),
            Request::Delete(Target { container, exec: Some(exec) }) => self.delete_exec(id, container, exec),
            Request::Switch(name) => self.switch(id, &name),
            Request::Pause(container) => self.pause(id, container),
            Request::Resume(container) => self.resume(id, container),
            Request::Checkpoint { container, after } => self.checkpoint(id, container, after),
        }
    }

    /// Finds the container whose operation has ended. An id that no container waits for belongs to an operation that
    /// was overtaken (a gate's probe after its gate was closed): nothing to do.
    fn done(&mut self, op: OpId, outcome: Outcome, ended: Exit) {
        let Some(id) = self.containers.values().find(|c| c.waits_for(op)).map(|c| c.id.clone()) else {
            return;
        };
        let Some(container) = self.containers.get(&id) else { return };
        if let Some(exec) = container.exec_waiting_for(op) {
            return match container.execs[&exec].phase {
                crate::exec::ExecPhase::Starting { .. } => self.exec_started(id, exec, outcome),
                _ => self.exec_removed(id, exec, outcome),
            };
        }
        if let Freezer::Changing(waiting, request, change) = container.freezer
            && waiting == op
        {
            return self.freezer_changed(id, request, change, outcome);
        }
        if container.checkpoint.is_some_and(|checkpoint| checkpoint.op == op) {
            return self.checkpointed(&id, outcome);
        }
        if container.hooks.waits_for(op) {
            return self.hook_ended(&id, op, outcome);
        }
        match &container.phase {
            Phase::Creating { op: waiting, .. } if *waiting == op => self.created(id, outcome, ended),
            Phase::Restoring { op: waiting, .. } if *waiting == op => self.restored(id, outcome),
            Phase::Starting { op: waiting, .. } if *waiting == op => self.started(id, outcome, ended),
            Phase::Recreating { op: waiting, .. } if *waiting == op => self.recreated(id, outcome, ended),
            Phase::Removing { op: waiting, .. } if *waiting == op => self.removed(id, outcome, ended),
            Phase::Draining { op: Some(waiting), .. } if *waiting == op => self.leftovers_killed(id, outcome),
            _ => self.checked(id, outcome),
        }
    }

    /// Applies the rules until nothing changes.
    fn settle(&mut self) {
        for _ in 0..MOST_ROUNDS {
            let before = self.changes;
            self.detect_callers_stop();
            self.apply_stop();
            self.run_on_terminate_hooks();
            self.take_turns();
            self.end_restarts();
            self.end_takeovers();
            self.apply_container_timers();
            self.release();
            self.count_ends();
            self.detect_completion();
            self.finish_stop();
            if self.changes == before {
                return;
            }
        }
        // Rules that never settle are a fault of podshim: it must not take the node's memory.
        self.act(Action::Warn(UNSETTLED.to_owned()));
    }

    /// Queues an action. A rule that changes the tables always calls this or `changed`.
    pub(crate) fn act(&mut self, action: Action) {
        self.changed();
        self.actions.push_back(action);
    }

    /// Queues an action that changes no table.
    pub(crate) fn queue(&mut self, action: Action) {
        self.actions.push_back(action);
    }

    pub(crate) fn changed(&mut self) {
        self.changes += 1;
    }

    pub(crate) fn reply(&mut self, request: RequestId, result: Result<Reply, Refusal>) {
        self.act(Action::Reply { request, result });
    }

    pub(crate) fn next_op(&mut self) -> OpId {
        self.next_op += 1;
        OpId(self.next_op)
    }

    /// Starts an operation on a container.
    pub(crate) fn run(&mut self, id: &ContainerId, operation: Operation) -> OpId {
        let op = self.next_op();
        self.act(Action::Run { op, container: id.clone(), operation });
        op
    }

    /// Logs an event that the driver's contract rules out, and ignores it.
    pub(crate) fn impossible(&mut self, what: String) {
        self.act(Action::Warn(format!("ignored, as it cannot be: {what}")));
    }

    /// The pause pid, or in a pod without pause the pid of any live container: it stands in for a container that has no
    /// process at the moment (F13). Never the shim's own pid.
    pub(crate) fn anchor_pid(&self) -> Option<u32> {
        let sandbox = self.sandbox.as_ref().and_then(|id| self.containers.get(id));
        sandbox
            .filter(|c| c.has_process())
            .or_else(|| self.containers.values().find(|c| c.has_process()))
            .map(|c| c.pid)
    }

    pub(crate) fn policy(&self) -> RestartPolicy {
        self.plan.as_ref().map(|plan| plan.restart_policy).unwrap_or_default()
    }

    /// Takes the pod's plan from the first container that may declare it. The sandbox decides, also if it declares
    /// none; without a sandbox (ctr) the first container with a plan decides (11.4).
    pub(crate) fn learn_plan(&mut self, spec: &ContainerSpec) {
        if self.plan_is_settled() {
            if spec.plan.is_some() && spec.plan != self.plan {
                self.act(Action::Warn(format!(
                    "container {:?} declares another plan than its pod; the pod's counts",
                    spec.name
                )));
            }
            return;
        }
        if let Some(plan) = &spec.plan {
            self.members = MemberState::of_plan(plan);
            self.plan = Some(plan.clone());
        }
    }

    /// What a new container is to the pod (S1, S8).
    pub(crate) fn part_of(&mut self, spec: &ContainerSpec) -> Part {
        use crate::event::KubeletType::{Ephemeral, Init};
        if spec.kind == TaskKind::Sandbox {
            return Part::Sandbox;
        }
        let Some(plan) = &self.plan else { return Part::Passthrough };
        // S8: `*=main` never makes a main of a kubelet's own init containers and debug containers.
        let is_kubelets_own = matches!(spec.kubelet_type, Some(Init | Ephemeral));
        let named = self.members.iter().position(|state| state.member.name == spec.name);
        if let Some(index) = named.filter(|index| !is_kubelets_own || !self.is_unnamed(*index)) {
            return Part::Member(index);
        }
        match (plan.others, is_kubelets_own) {
            (Others::Passthrough, _) | (Others::Mains, true) => Part::Passthrough,
            (Others::Mains, false) => {
                let new = MemberState::unnamed_main(plan, &spec.name);
                let vacant = (0..self.members.len()).find(|index| self.is_vacant(*index));
                match vacant {
                    Some(index) => self.members[index] = new,
                    None => self.members.push(new),
                }
                Part::Member(vacant.unwrap_or(self.members.len() - 1))
            }
        }
    }
}

impl Container {
    fn waits_for(&self, op: OpId) -> bool {
        let phase = match &self.phase {
            Phase::Creating { op, .. }
            | Phase::Starting { op, .. }
            | Phase::Restoring { op, .. }
            | Phase::Recreating { op, .. }
            | Phase::Removing { op, .. } => Some(*op),
            Phase::Draining { op, .. } => *op,
            _ => None,
        };
        phase == Some(op)
            || matches!(self.freezer, Freezer::Changing(waiting, ..) if waiting == op)
            || self.probe.as_ref().is_some_and(|probe| probe.waits_for(op))
            || self.checkpoint.is_some_and(|checkpoint| checkpoint.op == op)
            || self.hooks.waits_for(op)
            || self.exec_waiting_for(op).is_some()
    }

    fn exec_waiting_for(&self, op: OpId) -> Option<crate::event::ExecId> {
        use crate::exec::ExecPhase::{Removing, Starting};
        let waits = |phase: &_| matches!(phase, Starting { op: waiting, .. } | Removing { op: waiting, .. } if *waiting == op);
        self.execs.iter().find(|(_, exec)| waits(&exec.phase)).map(|(id, _)| id.clone())
    }
}
