//! One planned container, over all tasks of its name.
//!
//! Owns what outlives a task: its gate, its place in a pair, how it ended, and who asked for that. The order is data here
//! (`links`), never code. Knows no other member, and of a container only whether its program has run.

pub(crate) mod evidence;
pub(crate) mod gate;
pub(crate) mod pair;

use std::fmt;

use pod_spec::{Condition, Fatal, Gate, GateAction, Link, Member, Order, Plan, RestartPolicy, Role};

use crate::interface::exit::Exit;
use crate::interface::id::ContainerId;
use crate::interface::inspection::{GateProgress, InspectedPart};
use crate::interface::spec::{ContainerSpec, KubeletType};
use crate::interface::time::PodTime;
use crate::member::evidence::{Ask, Ended, Seen};
use crate::member::gate::{GateState, MemberGate, NewestTask};
use crate::member::pair::PairPlace;

/// One planned container, and what is known of it across all tasks of its name.
#[derive(Clone, Debug)]
pub(crate) struct MemberState {
    member: Member,
    links: Vec<Link>,
    steps_after: u32,
    gate_use: GateUse,
    current: Option<ContainerId>,
    pub(crate) gate: MemberGate,
    pub(crate) pair: PairPlace,
    completed: Option<Exit>,
    repeat: Repeat,
    awaited_exit: AwaitedExit,
    ended: Option<Ended>,
    asked: Option<Ask>,
    seen: Seen,
    start_failure: Option<String>,
    recreation: Recreation,
    creation: Creation,
}

/// T18: whether a completed init runs again if its caller creates it again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repeat {
    /// No: nothing that comes after it has been started.
    Unfollowed,
    /// No: something has.
    Followed,
    /// Yes: after that everything has ended, and nothing that comes after it has been started again.
    IfRecreated,
}

/// I5: whether the caller of an init waits for its exit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AwaitedExit {
    /// It has created nothing that comes after the init before that had completed.
    Perhaps,
    /// It has: it takes the init for a container like others.
    No,
}

/// Whether any condition asks if a member's program has been exec'd or is ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GateUse {
    Unused,
    Awaited,
}

/// When a caller recreates a container that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Recreation {
    /// As the pod's restart policy says.
    ByPolicy,
    /// A kubelet's native sidecar: under any policy.
    Always,
    /// A kubelet's init container: not once it has exited with 0.
    AfterFailure,
}

/// Whether a caller asks for a task's end for the first time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FirstAsk {
    Yes,
    No,
}

/// Whether a task is the first of its name in this sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Creation {
    First,
    Again,
}

impl MemberState {
    fn new(member: Member, links: Vec<Link>, steps_after: u32, gate_use: GateUse) -> Self {
        Self {
            steps_after,
            member,
            links,
            gate_use,
            current: None,
            gate: MemberGate::default(),
            pair: PairPlace::default(),
            completed: None,
            repeat: Repeat::Unfollowed,
            awaited_exit: AwaitedExit::Perhaps,
            ended: None,
            asked: None,
            seen: Seen::Created,
            start_failure: None,
            recreation: Recreation::ByPolicy,
            creation: Creation::First,
        }
    }

    /// The members of a plan, in its order.
    pub(crate) fn of_plan(plan: Plan) -> Vec<Self> {
        let order = Order::of(&plan);
        let state = |(index, member): (usize, Member)| {
            let gate_use = if order.is_awaited(index) { GateUse::Awaited } else { GateUse::Unused };
            let is_second = member.is_second_of_pair(index);
            let after = order.steps_after(index);
            let mut state = Self::new(member, order.links(index).to_vec(), after, gate_use);
            if is_second {
                state.pair = PairPlace::standby();
            }
            state
        };
        plan.members.into_iter().enumerate().map(state).collect()
    }

    /// A planned main that only `*=main` names (S8).
    pub(crate) fn unnamed_main(links: Vec<Link>, steps_after: u32, name: &str) -> Self {
        Self::new(Member::new(name, Role::Main, usize::MAX), links, steps_after, GateUse::Unused)
    }
}

/// What is known of it.
impl MemberState {
    /// What the plan says of it.
    pub(crate) fn member(&self) -> &Member {
        &self.member
    }

    pub(crate) fn role(&self) -> Role {
        self.member.role
    }

    /// The members it waits for at start; reversed, this is the stop order.
    pub(crate) fn links(&self) -> &[Link] {
        &self.links
    }

    /// T19: how many steps of a stop follow it.
    pub(crate) fn steps_after(&self) -> u32 {
        self.steps_after
    }

    /// Whether `earlier` may not end before it has ended (T1): the start order reversed.
    pub(crate) fn needs(&self, earlier: usize) -> bool {
        pod_spec::needs(&self.links, earlier)
    }

    /// Whether any condition asks if its program has been exec'd or is ready.
    pub(crate) fn is_awaited(&self) -> bool {
        self.gate_use == GateUse::Awaited
    }

    /// The newest task of that name, until it is deleted.
    pub(crate) fn current(&self) -> Option<&ContainerId> {
        self.current.as_ref()
    }

    /// How an init completed; it does not run again in this sandbox (I4, but T18).
    pub(crate) fn completed(&self) -> Option<Exit> {
        self.completed
    }

    /// The end of the newest task that ran (J1, J6). A main keeps it until a newer task runs (J11), others until a
    /// newer task is created.
    pub(crate) fn ended(&self) -> Option<&Ended> {
        self.ended.as_ref()
    }

    /// The code of that end, once it counts (T15).
    pub(crate) fn counted_code(&self) -> Option<u32> {
        self.ended()?.counted_code()
    }

    /// How a caller asked for its end, if one did: this counts until a newer task of the name is created or the stop is
    /// over (T12).
    pub(crate) fn asked(&self) -> Option<Ask> {
        self.asked
    }

    /// Why its newest task could not be created or started.
    pub(crate) fn start_failure(&self) -> Option<&str> {
        self.start_failure.as_deref()
    }

    /// Whether a kubelet recreates it under any policy, as it knows native sidecars.
    pub(crate) fn is_native(&self) -> bool {
        self.recreation == Recreation::Always
    }

    /// T18: whether it is a completed init that its caller stopped, which saw it running until then (I5) and recreates it
    /// whatever it exited with. Not one whose exit its caller waits for: that one has seen it done.
    pub(crate) fn was_stopped_when_done(&self, policy: RestartPolicy) -> bool {
        self.completed.is_some()
            && !self.exit_may_be_awaited()
            && self.asked.is_some()
            && self.seen == Seen::Running
            && policy == RestartPolicy::Always
            && self.recreation == Recreation::ByPolicy
    }

    /// I5: whether its caller may be waiting for the exit of this init.
    pub(crate) fn exit_may_be_awaited(&self) -> bool {
        self.awaited_exit == AwaitedExit::Perhaps
    }

    /// T18: whether it is a completed init that runs again if its caller creates it again now.
    pub(crate) fn runs_again_if_recreated(&self) -> bool {
        self.completed.is_some() && self.repeat == Repeat::IfRecreated
    }

    /// Whether no task of its name was ever created in this sandbox.
    pub(crate) fn was_never_created(&self) -> bool {
        self.creation == Creation::First
    }

    /// What opens its gate, while that is closed (U2, U3).
    pub(crate) fn closed_gate(&self) -> Option<&GateAction> {
        match &self.member.gate {
            Gate::Probe { action, .. } if !self.gate.is_open() => Some(action),
            _ => None,
        }
    }

    /// Whether an exit with that code stops the pod (R9).
    pub(crate) fn is_fatal(&self, code: u32) -> bool {
        match self.member.fatal {
            Some(Fatal::Exit) => true,
            // R14: an exit that can restart the pod no more.
            Some(Fatal::Failure | Fatal::Restart { .. }) => code != 0,
            None => false,
        }
    }

    /// R14: whether an exit of it can restart the pod.
    pub(crate) fn restarts_pod(&self) -> bool {
        self.member.restarts_the_pod()
    }

    /// Whether a condition on this member holds.
    pub(crate) fn satisfies(&self, condition: Condition) -> bool {
        match condition {
            Condition::Started => self.gate.state() >= GateState::Started || self.is_done(),
            Condition::Ready => self.gate.is_open() || self.is_done(),
            Condition::Done => self.is_done(),
        }
    }

    /// Whether its work is done: an init has completed, a main has exited with 0.
    fn is_done(&self) -> bool {
        match self.member.role {
            Role::Init => self.completed.is_some(),
            Role::Main => self.ended.as_ref().is_some_and(Ended::is_success),
            Role::Sidecar => false,
        }
    }

    pub(crate) fn inspected_part(&self) -> InspectedPart {
        if self.pair.is_active() { InspectedPart::Planned(self.member.role) } else { InspectedPart::Standby }
    }

    pub(crate) fn inspected_gate(&self) -> Option<(Gate, GateProgress)> {
        let progress = match self.gate.state() {
            GateState::Closed => GateProgress::Closed,
            GateState::Started => GateProgress::Started,
            GateState::Open => GateProgress::Open,
        };
        self.is_awaited().then(|| (self.member.gate.clone(), progress))
    }
}

/// What happens to it.
impl MemberState {
    /// A task of its name is created. Its role, and an open gate, stay (R11).
    pub(crate) fn created(
        &mut self,
        id: ContainerId,
        spec: &ContainerSpec,
        policy: RestartPolicy,
    ) -> Creation {
        self.recreation = match (self.member.role, spec.kubelet_type) {
            (Role::Sidecar, Some(KubeletType::Init)) => Recreation::Always,
            (Role::Init, Some(KubeletType::Init)) => Recreation::AfterFailure,
            (Role::Sidecar, None) if self.comes_back_under_never(spec, policy) => Recreation::Always,
            _ => Recreation::ByPolicy,
        };
        self.current = Some(id);
        self.asked = None;
        self.start_failure = None;
        // T15: what its caller stopped has come back. J11: a main of a job keeps its end until it runs again, but under Never one that
        // has failed is created once more on purpose.
        let counts = match policy {
            RestartPolicy::Always => false,
            RestartPolicy::OnFailure => true,
            RestartPolicy::Never => !self.ended().is_some_and(Ended::is_failure),
        };
        let kept = self.member.role == Role::Main && counts && self.counted_code().is_some();
        if !kept {
            self.ended = None;
        }
        std::mem::replace(&mut self.creation, Creation::Again)
    }

    /// I8: under Never a kubelet tries again what could not be started only if it knows it as a native sidecar. That is never
    /// forgotten.
    fn comes_back_under_never(&self, spec: &ContainerSpec, policy: RestartPolicy) -> bool {
        let is_tried_again = self.creation == Creation::Again && self.start_failure.is_some();
        self.is_native() || policy == RestartPolicy::Never && spec.kubelet.is_some() && is_tried_again
    }

    /// Its newest task could not be created or started.
    pub(crate) fn start_failed(&mut self, why: &str) {
        self.start_failure = Some(why.to_owned());
    }

    /// The program of its newest task runs.
    pub(crate) fn runs(&mut self) {
        self.ended = None;
        self.start_failure = None;
    }

    /// A caller asks for the end. A stop signal counts as one whatever comes before and after it. Returns whether it is the
    /// first request: a kubelet's SIGKILL comes a grace period later.
    pub(crate) fn ask(&mut self, how: Ask, seen: Seen) -> FirstAsk {
        let before = self.asked;
        self.seen = seen;
        self.asked = before.filter(|before| *before == Ask::Signal).or(Some(how));
        if before.is_none() { FirstAsk::Yes } else { FirstAsk::No }
    }

    /// S8: another member keeps that memory.
    pub(crate) fn forget_ask(&mut self) {
        self.asked = None;
    }

    /// I4: an init has completed.
    pub(crate) fn complete(&mut self, exit: Exit) {
        self.completed = Some(exit);
    }

    /// I5: something that comes after this init is created.
    pub(crate) fn not_waited_for(&mut self) {
        if self.completed.is_none() {
            self.awaited_exit = AwaitedExit::No;
        }
    }

    /// S15: nothing that comes after this init was created.
    pub(crate) fn not_followed(&mut self) {
        (self.awaited_exit, self.repeat) = (AwaitedExit::Perhaps, Repeat::Unfollowed);
    }

    /// T18: the caller's Start of something that comes after this init has succeeded.
    pub(crate) fn followed(&mut self) {
        self.repeat = Repeat::Followed;
    }

    /// T18: every planned container has ended.
    pub(crate) fn all_have_ended(&mut self) {
        if self.repeat == Repeat::Followed {
            self.repeat = Repeat::IfRecreated;
        }
    }

    /// T18: it runs again, and what waits for it waits.
    pub(crate) fn begin_again(&mut self) {
        self.renew();
        self.repeat = Repeat::Unfollowed;
    }

    /// R14: it runs again in its container, and what waits for it waits.
    pub(crate) fn renew(&mut self) {
        self.completed = None;
        self.ended = None;
    }

    /// Its newest task has ended.
    pub(crate) fn end(&mut self, ended: Ended) {
        self.ended = Some(ended);
    }

    /// T15: its caller's time to recreate it is over, if that end was open until now. Returns the code that counts.
    pub(crate) fn let_end_count(&mut self, now: PodTime) -> Option<u32> {
        let ended = self.ended.as_mut()?;
        ended.open_until().filter(|until| now >= *until)?;
        ended.counts_now();
        ended.counted_code()
    }

    /// Its newest task is deleted, if it is this one. Returns whether it is.
    pub(crate) fn forget(&mut self, id: &ContainerId) -> bool {
        let is_current = self.current.as_ref() == Some(id);
        if is_current {
            self.current = None;
        }
        is_current
    }

    /// T14: a stop is over. J11: in a job the ends of the mains are kept.
    pub(crate) fn end_round(&mut self, newest: NewestTask, policy: RestartPolicy) {
        if policy == RestartPolicy::Always {
            self.ended = None;
        }
        self.asked = None;
        self.pair.end_round();
        self.gate.end_round(newest);
    }
}

impl fmt::Display for MemberState {
    /// As messages name it: `sidecar "proxy"`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.member.role, self.member.name)
    }
}
