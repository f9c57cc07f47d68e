//! The pod's tables: plan, members, containers, sandbox, stop, failure.
//!
//! Owns that they fit together: which container is a member's newest, and what is forgotten with a container. Decides
//! nothing. Every rule and handler is a function over this state; its parts change only through their own verbs.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pod_spec::limits::MAX_KUBELETS_OWN;
use pod_spec::{ExitCodes, KubeletsOwn, Link, Others, Plan, RestartPolicy, Role, Settings};

use crate::callers_stop::CallersStop;
use crate::container::exec::Exec;
use crate::container::{Container, RemovedContainer};
use crate::interface::action::{Action, Reply};
use crate::interface::id::{ContainerId, ExecId, OpId, RequestId, Target};
use crate::interface::milestone::Milestone;
use crate::interface::operation::Operation;
use crate::interface::outcome::Refusal;
use crate::interface::spec::Caller;
use crate::interface::stop_cause::StopCause;
use crate::interface::time::PodTime;
use crate::member::MemberState;
use crate::outbox::Outbox;
use crate::pod_restarts::PodRestarts;
use crate::rounds::Rounds;
use crate::sandbox::Sandbox;
use crate::stop::Stop;

/// S8, T12: of how many mains without a container podshim remembers that a caller stopped them: as many as a plan can have.
const MOST_STOPPED_MAINS: usize = 64;

/// Why no container of the plan starts any more (I2).
#[derive(Clone, Debug)]
pub(crate) struct PodFailure {
    pub(crate) member: usize,
    pub(crate) reason: String,
}

/// The tables. The plan is kept in parts, each of it once.
#[derive(Clone, Debug, Default)]
pub(crate) struct State {
    settings: Option<Settings>,
    members: Vec<MemberState>,
    /// How many of the members the plan names; they come first.
    named: usize,
    /// What a main waits for that only `*=main` names; `None` if the plan has no `*=main` (S8).
    unnamed_main: Option<Vec<Link>>,
    /// The names of those that were created: more than there can be facts are as good as all (S15).
    created_unnamed: BTreeSet<String>,
    /// Which containers never become one of these (S8).
    kubelets_own: KubeletsOwn,
    /// The names that the pod's object has of these (S15).
    facts: BTreeSet<String>,
    containers: BTreeMap<ContainerId, Container>,
    pub(crate) sandbox: Sandbox,
    stop: Option<Stop>,
    pub(crate) callers_stop: CallersStop,
    failure: Option<PodFailure>,
    pub(crate) rounds: Rounds,
    pub(crate) restarts: PodRestarts,
    now: PodTime,
    outbox: Outbox,
}

/// Time, and what goes out.
impl State {
    pub(crate) fn now(&self) -> PodTime {
        self.now
    }

    /// Time passes; it never goes backwards.
    pub(crate) fn advance(&mut self, now: PodTime) {
        self.now = self.now.max(now);
    }

    /// See [`Outbox::changes`].
    pub(crate) fn changes(&self) -> u64 {
        self.outbox.changes()
    }

    /// See [`Outbox::take`].
    pub(crate) fn take_action(&mut self) -> Option<Action> {
        self.outbox.take()
    }

    /// See [`Outbox::emit_change`]. A rule that changes the tables always calls this or `mark_changed`.
    pub(crate) fn emit_change(&mut self, action: Action) {
        self.outbox.emit_change(action);
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

    /// A decision worth a line in the shim's own log.
    pub(crate) fn note(&mut self, line: impl Into<String>) {
        self.emit_change(Action::Note(line.into()));
    }

    /// Logs an event that the driver's contract rules out, and ignores it.
    pub(crate) fn impossible(&mut self, what: String) {
        self.emit_change(Action::Warn(format!("ignored, as it cannot be: {what}")));
    }

    /// Records something about a container. The tables do not change, so no rule sees it.
    pub(crate) fn record(&mut self, id: &ContainerId, milestone: Milestone) {
        self.outbox.emit(Action::Record { container: Some(id.clone()), milestone });
    }

    /// Records something about the pod.
    pub(crate) fn record_of_pod(&mut self, milestone: Milestone) {
        self.outbox.emit(Action::Record { container: None, milestone });
    }
}

/// The plan.
impl State {
    /// What the pod's plan says of the pod as a whole, if it has a plan.
    pub(crate) fn settings(&self) -> Option<&Settings> {
        self.settings.as_ref()
    }

    pub(crate) fn has_plan(&self) -> bool {
        self.settings.is_some()
    }

    /// Whether the pod's plan, or that it has none, is settled, so that later containers cannot change it.
    pub(crate) fn plan_is_settled(&self) -> bool {
        self.has_plan() || self.sandbox.id().is_some()
    }

    /// The pod's plan is known.
    pub(crate) fn declare_plan(&mut self, plan: Plan) {
        let unnamed_main = plan.links_of_unnamed_main();
        self.unnamed_main = (plan.others == Others::Mains).then_some(unnamed_main);
        self.named = plan.members.len();
        self.kubelets_own.clone_from(&plan.kubelets_own);
        self.settings = Some(plan.settings);
        self.members = MemberState::of_plan(plan);
    }

    /// Whether this is the plan that was declared.
    pub(crate) fn is_the_plan(&self, plan: &Plan) -> bool {
        let others = if self.unnamed_main.is_some() { Others::Mains } else { Others::Passthrough };
        let named = self.members.iter().take(self.named).map(MemberState::member);
        self.settings == Some(plan.settings)
            && (others, &self.kubelets_own) == (plan.others, &plan.kubelets_own)
            && named.eq(&plan.members)
    }

    /// R14: whether podshim restarts the whole pod after some exit of a member.
    pub(crate) fn restarts_as_a_whole(&self) -> bool {
        self.members.iter().any(MemberState::restarts_pod)
    }

    pub(crate) fn policy(&self) -> RestartPolicy {
        self.settings().map(|settings| settings.restart_policy).unwrap_or_default()
    }

    /// Whether callers never recreate a container whose exit they have seen.
    pub(crate) fn recreates_nothing(&self) -> bool {
        self.policy() == RestartPolicy::Never
    }

    pub(crate) fn masks_exit_codes(&self) -> bool {
        self.settings().is_some_and(|settings| settings.exit_codes == ExitCodes::Masked)
    }

    pub(crate) fn replace_wait(&self) -> Duration {
        self.settings().map(|settings| settings.defaults.replace_wait).unwrap_or_default()
    }

    pub(crate) fn lone_stop_window(&self) -> Duration {
        self.settings().map(|settings| settings.defaults.lone_stop_window).unwrap_or_default()
    }
}

/// Members.
impl State {
    pub(crate) fn members(&self) -> &[MemberState] {
        &self.members
    }

    pub(crate) fn member(&self, index: usize) -> &MemberState {
        &self.members[index]
    }

    pub(crate) fn member_mut(&mut self, index: usize) -> &mut MemberState {
        &mut self.members[index]
    }

    pub(crate) fn mains(&self) -> impl Iterator<Item = &MemberState> {
        self.members.iter().filter(|state| state.role() == Role::Main)
    }

    /// T19: how many steps of a stop follow the mains.
    pub(crate) fn steps_after_mains(&self) -> u32 {
        let sidecars = self.members.iter().filter(|state| state.role() == Role::Sidecar);
        sidecars.map(|state| state.steps_after() + 1).max().unwrap_or(0)
    }

    /// The partner of a member.
    pub(crate) fn partner(&self, index: usize) -> Option<usize> {
        self.members[index].member().pair
    }

    /// The newest container of a member, if podshim still knows it.
    pub(crate) fn current(&self, index: usize) -> Option<&Container> {
        self.containers.get(self.members[index].current()?)
    }

    /// Whether a member has no task that could still do something.
    pub(crate) fn is_gone(&self, index: usize) -> bool {
        self.current(index).is_none_or(Container::is_final)
    }

    /// Whether nothing planned is left.
    pub(crate) fn all_are_gone(&self) -> bool {
        (0..self.members.len()).all(|index| self.is_gone(index))
    }

    /// Whether a container of that name is the kubelet's own, unless the plan gives it a role (S8, S15).
    pub(crate) fn is_kubelets_own(&self, name: &str) -> bool {
        self.kubelets_own.has(name) || self.facts.contains(name)
    }

    /// S15: the names of init and ephemeral containers that the pod's object has.
    pub(crate) fn facts(&self) -> &BTreeSet<String> {
        &self.facts
    }

    /// S15: none is taken back.
    pub(crate) fn add_facts(&mut self, names: BTreeSet<String>) {
        self.facts.extend(names);
    }

    /// S15: the names of the mains that were created, and that only `*=main` names.
    pub(crate) fn created_unnamed(&self) -> &BTreeSet<String> {
        &self.created_unnamed
    }

    /// Whether the plan has `*=main` (S8).
    pub(crate) fn has_unnamed_mains(&self) -> bool {
        self.unnamed_main.is_some()
    }

    /// Whether only `*=main` names a member (S8).
    pub(crate) fn is_unnamed(&self, index: usize) -> bool {
        index >= self.named
    }

    /// Whether a member that only `*=main` named has no container any more and is no evidence of a stop (T12): the next
    /// unnamed main may take its place. Under ctr each container has a name of its own.
    pub(crate) fn is_vacant(&self, index: usize) -> bool {
        self.is_unnamed(index)
            && self.members[index].asked().is_none()
            && !self.containers().any(|container| container.member() == Some(index))
    }

    /// S8: a main that only `*=main` names takes a vacant place, or a new one. Returns the place; `None` if the plan has no `*=main`.
    pub(crate) fn add_unnamed_main(&mut self, name: &str) -> Option<usize> {
        let main = self.new_unnamed_main(name)?;
        if self.created_unnamed.len() <= MAX_KUBELETS_OWN {
            self.created_unnamed.insert(name.to_owned());
        }
        let vacant = (0..self.members.len()).find(|index| self.is_vacant(*index));
        if let Some(index) = vacant {
            self.members[index] = main;
            return vacant;
        }
        self.members.push(main);
        Some(self.members.len() - 1)
    }

    fn new_unnamed_main(&self, name: &str) -> Option<MemberState> {
        Some(MemberState::unnamed_main(self.unnamed_main.clone()?, self.steps_after_mains(), name))
    }

    /// S15: a main that only `*=main` names becomes passthrough, and its place is as if it had never been.
    pub(crate) fn leave_plan(&mut self, index: usize) {
        let Some(id) = self.members[index].current().cloned() else { return };
        let Some(vacant) = self.new_unnamed_main(&self.members[index].member().name) else { return };
        self.members[index] = vacant;
        if let Some(container) = self.containers.get_mut(&id) {
            container.leave_plan();
        }
    }

    /// A member without a container only remembers that a caller stopped a main (T12), until that is created again. Of too many one
    /// is forgotten: the others say the same.
    fn limit_evidence(&mut self, newest: usize, most: usize) {
        let Some(asked) = self.members[newest].asked().filter(|_| self.is_unnamed(newest)) else { return };
        let is_alike = |index: &usize| {
            let state = &self.members[*index];
            *index != newest && state.current().is_none() && state.asked() == Some(asked)
        };
        let alike: Vec<_> = (self.named..self.members.len()).filter(is_alike).collect();
        if alike.len() >= most {
            self.members[alike[0]].forget_ask();
        }
    }
}

/// Containers.
impl State {
    pub(crate) fn containers(&self) -> impl Iterator<Item = &Container> {
        self.containers.values()
    }

    pub(crate) fn containers_mut(&mut self) -> impl Iterator<Item = &mut Container> {
        self.containers.values_mut()
    }

    pub(crate) fn container(&self, id: &ContainerId) -> Option<&Container> {
        self.containers.get(id)
    }

    pub(crate) fn container_mut(&mut self, id: &ContainerId) -> Option<&mut Container> {
        self.containers.get_mut(id)
    }

    pub(crate) fn exec_mut(&mut self, id: &ContainerId, exec: &ExecId) -> Option<&mut Exec> {
        self.container_mut(id)?.exec_mut(exec)
    }

    /// The newest containers of all members. An older task of the same name is final, and nothing depends on it.
    pub(crate) fn planned(&self) -> impl Iterator<Item = (&MemberState, &Container)> {
        self.members.iter().filter_map(|state| Some((state, self.containers.get(state.current()?)?)))
    }

    /// The ids of the planned containers that satisfy a condition, in plan order.
    pub(crate) fn planned_where(
        &self,
        wanted: impl Fn(&MemberState, &Container) -> bool,
    ) -> Vec<ContainerId> {
        self.planned().filter(|(s, c)| wanted(s, c)).map(|(_, c)| c.id().clone()).collect()
    }

    /// The member that a container is a task of.
    pub(crate) fn member_of(&self, container: &Container) -> Option<&MemberState> {
        container.member().map(|index| &self.members[index])
    }

    pub(crate) fn role(&self, container: &Container) -> Option<Role> {
        self.member_of(container).map(MemberState::role)
    }

    pub(crate) fn role_of(&self, id: &ContainerId) -> Option<Role> {
        self.container(id).and_then(|container| self.role(container))
    }

    /// The pause pid, or in a pod without pause the pid of any live container: it stands in for a container that has no
    /// process at the moment (F13). Never the shim's own pid.
    pub(crate) fn stand_in_pid(&self) -> Option<u32> {
        let sandbox = self.sandbox.id().and_then(|id| self.container(id));
        sandbox
            // A sandbox without a process has pid 0, which containerd takes for "no process".
            .filter(|container| container.has_process() && container.pid() != 0)
            .or_else(|| self.containers().find(|container| container.has_process() && container.pid() != 0))
            .map(Container::pid)
    }

    pub(crate) fn add_container(&mut self, container: Container) {
        self.containers.insert(container.id().clone(), container);
    }

    /// Drops a container from the tables. Returns what is left to answer.
    pub(crate) fn remove_container(&mut self, id: &ContainerId) -> Option<RemovedContainer> {
        let container = self.containers.remove(id)?;
        if self.sandbox.id() == Some(id) {
            self.sandbox.deleted();
        }
        for index in 0..self.members.len() {
            if self.members[index].forget(id) {
                // Under ctr each container has a name of its own, which does not come again.
                let most = if container.spec().caller == Caller::Cri { MOST_STOPPED_MAINS } else { 1 };
                self.limit_evidence(index, most);
            }
        }
        Some(container.into_removed())
    }
}

/// The stop, and the failure.
impl State {
    /// The stop under way, if one is.
    pub(crate) fn stop(&self) -> Option<&Stop> {
        self.stop.as_ref()
    }

    pub(crate) fn stop_mut(&mut self) -> Option<&mut Stop> {
        self.stop.as_mut()
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stop.is_some()
    }

    /// R14: whether the stop under way is the first half of a restart.
    pub(crate) fn is_restarting(&self) -> bool {
        self.stop().is_some_and(|stop| stop.cause() == StopCause::Restart)
    }

    /// T6: whether the last call has come.
    pub(crate) fn budget_is_over(&self) -> bool {
        self.stop().is_some_and(Stop::budget_is_over)
    }

    /// A stop begins, or another one replaces it.
    pub(crate) fn begin_stop(&mut self, stop: Stop) {
        self.stop = Some(stop);
    }

    /// The stop is over.
    pub(crate) fn end_stop(&mut self) -> Option<Stop> {
        self.stop.take()
    }

    /// I2: why no container starts any more.
    pub(crate) fn failure(&self) -> Option<&PodFailure> {
        self.failure.as_ref()
    }

    /// From now on no container starts.
    pub(crate) fn fail(&mut self, member: usize, reason: String) {
        self.failure = Some(PodFailure { member, reason });
    }

    /// A caller that recreates the failed container wants another try.
    pub(crate) fn clear_failure_of(&mut self, member: usize) {
        if self.failure().is_some_and(|failure| failure.member == member) {
            self.failure = None;
        }
    }
}
