//! The pod's tables.

use std::collections::BTreeMap;
use std::time::Duration;

use pod_spec::{ExitCodes, Plan, RestartPolicy, Role};

use crate::container::Container;
use crate::container::exec::Exec;
use crate::container::freezer::Freezer;
use crate::interface::action::{Action, Reply};
use crate::interface::id::{ContainerId, ExecId, OpId, RequestId, Target};
use crate::interface::milestone::Milestone;
use crate::interface::operation::Operation;
use crate::interface::outcome::Refusal;
use crate::interface::time::PodTime;
use crate::member::MemberState;
use crate::outbox::Outbox;
use crate::stop::{Budget, SandboxEnd, Stop, StopCause};

/// Why no container of the plan starts any more (I2).
#[derive(Clone, Debug)]
pub(crate) struct PodFailure {
    pub(crate) member: usize,
    pub(crate) reason: String,
}

/// The tables.
#[derive(Clone, Debug)]
pub(crate) struct State {
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
    pub(crate) outbox: Outbox,
}

impl State {
    /// A pod without containers.
    pub(crate) fn new() -> Self {
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
            outbox: Outbox::default(),
        }
    }

    /// Time passes; it never goes backwards.
    pub(crate) fn advance(&mut self, now: PodTime) {
        self.now = self.now.max(now);
    }

    pub(crate) fn containers(&self) -> impl Iterator<Item = &Container> {
        self.containers.values()
    }

    pub(crate) fn container(&self, id: &ContainerId) -> Option<&Container> {
        self.containers.get(id)
    }

    pub(crate) fn member(&self, index: usize) -> &MemberState {
        &self.members[index]
    }

    pub(crate) fn stop(&self) -> Option<&Stop> {
        self.stop.as_ref()
    }

    pub(crate) fn changes(&self) -> u64 {
        self.outbox.changes()
    }

    pub(crate) fn take_action(&mut self) -> Option<Action> {
        self.outbox.take()
    }

    /// See [`Outbox::emit_change`]. A rule that changes the tables always calls this or `mark_changed`.
    pub(crate) fn emit_change(&mut self, action: Action) {
        self.outbox.emit_change(action);
    }

    /// See [`Outbox::emit`].
    pub(crate) fn emit(&mut self, action: Action) {
        self.outbox.emit(action);
    }

    /// See [`Outbox::mark_changed`].
    pub(crate) fn mark_changed(&mut self) {
        self.outbox.mark_changed();
    }

    /// Starts an operation on a container.
    pub(crate) fn run(&mut self, id: &ContainerId, operation: Operation) -> OpId {
        self.outbox.run(id.clone(), operation)
    }

    pub(crate) fn next_op(&mut self) -> OpId {
        self.outbox.next_op()
    }

    pub(crate) fn reply(&mut self, request: RequestId, result: Result<Reply, Refusal>) {
        self.emit_change(Action::Reply { request, result });
    }

    /// Logs an event that the driver's contract rules out, and ignores it.
    pub(crate) fn impossible(&mut self, what: String) {
        self.emit_change(Action::Warn(format!("ignored, as it cannot be: {what}")));
    }

    /// Records something about a container. The tables do not change, so no rule sees it.
    pub(crate) fn record(&mut self, id: &ContainerId, milestone: Milestone) {
        self.emit(Action::Record { container: Some(id.clone()), milestone });
    }

    /// Records something about the pod.
    pub(crate) fn record_of_pod(&mut self, milestone: Milestone) {
        self.emit(Action::Record { container: None, milestone });
    }

    pub(crate) fn policy(&self) -> RestartPolicy {
        self.plan.as_ref().map(|plan| plan.restart_policy).unwrap_or_default()
    }

    pub(crate) fn role(&self, container: &Container) -> Option<Role> {
        container.member().map(|index| self.members[index].member.role)
    }

    pub(crate) fn role_of(&self, id: &ContainerId) -> Option<Role> {
        self.containers.get(id).and_then(|container| self.role(container))
    }

    /// The newest container of a member, if podshim still knows it.
    pub(crate) fn current(&self, member: usize) -> Option<&Container> {
        self.containers.get(self.members[member].current.as_ref()?)
    }

    /// The newest containers of all members. An older task of the same name is final, and nothing depends on it.
    pub(crate) fn planned(&self) -> impl Iterator<Item = (&MemberState, &Container)> {
        self.members.iter().filter_map(|state| Some((state, self.containers.get(state.current.as_ref()?)?)))
    }

    /// The ids of the planned containers that satisfy a condition, in plan order.
    pub(crate) fn planned_where(
        &self,
        wanted: impl Fn(&MemberState, &Container) -> bool,
    ) -> Vec<ContainerId> {
        self.planned().filter(|(s, c)| wanted(s, c)).map(|(_, c)| c.id.clone()).collect()
    }

    pub(crate) fn is_unnamed(&self, index: usize) -> bool {
        self.plan.as_ref().is_some_and(|plan| index >= plan.members.len())
    }

    /// Whether a member that only `*=main` named has no container any more and is no evidence of a stop (T12): the next
    /// unnamed main may take its place. Under ctr each container has a name of its own.
    pub(crate) fn is_vacant(&self, index: usize) -> bool {
        self.is_unnamed(index)
            && self.members[index].asked.is_none()
            && !self.containers.values().any(|container| container.member() == Some(index))
    }

    /// Whether a member has no task that could still do something.
    pub(crate) fn is_gone(&self, index: usize) -> bool {
        self.current(index).is_none_or(Container::is_final)
    }

    /// Whether callers never recreate a container whose exit they have seen.
    pub(crate) fn recreates_nothing(&self) -> bool {
        self.policy() == RestartPolicy::Never
    }

    pub(crate) fn replace_wait(&self) -> Duration {
        self.plan.as_ref().map(|plan| plan.defaults.replace_wait).unwrap_or_default()
    }

    pub(crate) fn lone_stop_window(&self) -> Duration {
        self.plan.as_ref().map(|plan| plan.defaults.lone_stop_window).unwrap_or_default()
    }

    /// T6: whether the last call has come.
    pub(crate) fn budget_is_over(&self) -> bool {
        self.stop.as_ref().is_some_and(|stop| matches!(stop.budget, Budget::LastCall { .. } | Budget::Spent))
    }

    /// The partner of a member.
    pub(crate) fn partner(&self, index: usize) -> Option<usize> {
        self.members[index].member.pair
    }

    pub(crate) fn mains(&self) -> impl Iterator<Item = &MemberState> {
        self.members.iter().filter(|state| state.member.role == Role::Main)
    }

    pub(crate) fn exec_mut(&mut self, id: &ContainerId, exec: &ExecId) -> Option<&mut Exec> {
        self.containers.get_mut(id)?.execs.get_mut(exec)
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

    /// The name of a container, as its plan spells it.
    pub(crate) fn name_of(&self, id: &ContainerId) -> Option<&str> {
        self.containers.get(id).map(|container| container.spec.name.as_str())
    }

    /// Whether the pod's plan, or that it has none, is settled, so that later containers cannot change it.
    pub(crate) fn plan_is_settled(&self) -> bool {
        self.plan.is_some() || self.sandbox.is_some()
    }

    pub(crate) fn reply_not_found(&mut self, request: RequestId, id: &ContainerId) {
        self.reply(request, Err(Refusal::not_found(format!("container {id} not found"))));
    }

    pub(crate) fn reply_exec_not_found(&mut self, request: RequestId, id: &ContainerId, exec: &ExecId) {
        let text = format!("exec {exec} of container {id} not found");
        self.reply(request, Err(Refusal::not_found(text)));
    }

    pub(crate) fn reply_finished(&mut self, request: RequestId, target: &Target) {
        self.reply(request, Err(Refusal::not_found(format!("{target}: process already finished"))));
    }

    /// A member without a container only remembers that a caller stopped a main (T12). One member with that memory is
    /// enough.
    pub(crate) fn merge_evidence(&mut self, newest: usize) {
        let Some(asked) = self.members[newest].asked.filter(|_| self.is_unnamed(newest)) else { return };
        for index in 0..self.members.len() {
            let state = &self.members[index];
            if index != newest
                && self.is_unnamed(index)
                && state.current.is_none()
                && state.asked == Some(asked)
            {
                self.members[index].asked = None;
            }
        }
    }

    /// Whether pause has had the signal that ends it (K13): a signal that comes now is for pause itself.
    pub(crate) fn sandbox_is_signalled(&self) -> bool {
        let signalled = StopCause::Sandbox(SandboxEnd::Signalled);
        self.stop.as_ref().is_some_and(|stop| stop.cause == signalled)
    }

    pub(crate) fn masks_exit_codes(&self) -> bool {
        self.plan.as_ref().is_some_and(|plan| plan.exit_codes == ExitCodes::Masked)
    }

    /// A pause that was under way at the exit would freeze the next process: the cgroup has the same name.
    pub(crate) fn freezer_is_busy(&self, id: &ContainerId) -> bool {
        self.containers.get(id).is_some_and(|container| matches!(container.freezer, Freezer::Changing(..)))
    }
}
