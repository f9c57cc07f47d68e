//! One planned container, over all tasks of its name.

pub(crate) mod evidence;

use std::fmt;

use pod_spec::{Condition, Fatal, Gate, GateAction, Link, Member, Order, Plan, RestartPolicy, Role};

use crate::interface::exit::Exit;
use crate::interface::id::ContainerId;
use crate::interface::inspection::{GateProgress, InspectedPart};
use crate::interface::spec::{ContainerSpec, KubeletType};
use crate::interface::time::PodTime;
use crate::member::evidence::{Ask, Asked, Ended};

/// One planned container, and what is known of it across all tasks of its name.
#[derive(Clone, Debug)]
pub(crate) struct MemberState {
    pub(crate) member: Member,
    /// The members it waits for at start; reversed, this is the stop order.
    pub(crate) links: Vec<Link>,
    /// Whether any condition asks if its program has been exec'd or is ready.
    pub(crate) is_awaited: Awaited,
    /// The newest task of that name, until it is deleted.
    pub(crate) current: Option<ContainerId>,
    /// Whether its program was allowed to start in this round: a newer task of the name does not wait again (S6).
    pub(crate) release: Release,
    /// How far its gate is. Once open it stays open for the round (U3).
    pub(crate) gate: GateState,
    /// Whether it is the active or the standby container of a pair (V1).
    pub(crate) duty: PairRole,
    /// Of a standby pair: whether its caller has started it in this round.
    pub(crate) was_started: Started,
    /// How an init completed; it never runs again in this sandbox (I4).
    pub(crate) completed: Option<Exit>,
    /// The end of the newest task that ran (J1, J6). A main keeps it until a newer task runs (J11), others until a
    /// newer task is created.
    pub(crate) ended: Option<Ended>,
    /// How a caller asked for its end, if one did: this counts until a newer task of the name is created or the stop is
    /// over (T12).
    pub(crate) asked: Option<Asked>,
    /// Why its newest task could not be created or started.
    pub(crate) start_failure: Option<String>,
    /// Whether its gate was ever open in this sandbox (I8).
    pub(crate) was_open: WasOpen,
    /// When its caller creates it again.
    pub(crate) recreation: Recreation,
    /// Whether the next task of its name is the first one.
    pub(crate) creation: Creation,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Release {
    Waiting,
    Released,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum GateState {
    Closed,
    /// The program has been exec'd (U1); its probe has not succeeded yet (U2).
    Started,
    Open,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WasOpen {
    Never,
    Before,
}

/// When a caller recreates a container that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Recreation {
    /// As the pod's restart policy says.
    ByPolicy,
    /// A kubelet's native sidecar: under any policy.
    Always,
}

/// Whether a task is the first of its name in this sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Creation {
    First,
    Again,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Awaited {
    ByNobody,
    BySomebody,
}

/// Whether a member is the active one of its pair. A member without a pair is active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PairRole {
    Active,
    Standby,
}

/// Whether a task of a member's name has been started in this round (V3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Started {
    Never,
    Before,
}

impl MemberState {
    fn new(member: Member, links: Vec<Link>, is_awaited: Awaited) -> Self {
        Self {
            member,
            links,
            is_awaited,
            current: None,
            release: Release::Waiting,
            gate: GateState::Closed,
            duty: PairRole::Active,
            was_started: Started::Never,
            completed: None,
            ended: None,
            asked: None,
            start_failure: None,
            was_open: WasOpen::Never,
            recreation: Recreation::ByPolicy,
            creation: Creation::First,
        }
    }

    /// Updates the member when a task of its name is created.
    pub(crate) fn created(
        &mut self,
        id: ContainerId,
        spec: &ContainerSpec,
        policy: RestartPolicy,
    ) -> Creation {
        let native = self.member.role == Role::Sidecar && spec.kubelet_type == Some(KubeletType::Init);
        self.recreation = if native { Recreation::Always } else { Recreation::ByPolicy };
        self.current = Some(id);
        self.asked = None;
        self.start_failure = None;
        let creation = self.creation;
        self.creation = Creation::Again;
        // T15: what its caller stopped has come back. J11: a main of a job keeps its end until it runs again.
        let kept = self.member.role == Role::Main
            && policy != RestartPolicy::Always
            && self.ended.is_some_and(|ended| ended.counted_code().is_some());
        if !kept {
            self.ended = None;
        }
        creation
    }

    /// Whether no task of its name was ever created in this sandbox.
    pub(crate) fn was_never_created(&self) -> bool {
        self.creation == Creation::First
    }

    /// Whether `earlier` may not end before it has ended (T1): the start order reversed.
    pub(crate) fn needs(&self, earlier: usize) -> bool {
        pod_spec::needs(&self.links, earlier)
    }

    /// What opens its gate, while that is closed (U2, U3).
    pub(crate) fn closed_gate(&self) -> Option<&GateAction> {
        match &self.member.gate {
            Gate::Probe { action, .. } if self.gate != GateState::Open => Some(action),
            _ => None,
        }
    }

    /// The program of its newest task runs.
    pub(crate) fn runs(&mut self) {
        self.ended = None;
        self.start_failure = None;
    }

    /// The members of a plan, in its order.
    pub(crate) fn of_plan(plan: &Plan) -> Vec<Self> {
        let order = Order::of(plan);
        let state = |(index, member): (usize, &Member)| {
            let is_awaited = if order.is_awaited(index) { Awaited::BySomebody } else { Awaited::ByNobody };
            Self::new(member.clone(), order.links(index).to_vec(), is_awaited)
        };
        let mut states: Vec<_> = plan.members.iter().enumerate().map(state).collect();
        for (index, state) in states.iter_mut().enumerate() {
            if state.member.is_second_of_pair(index) {
                state.duty = PairRole::Standby;
            }
        }
        states
    }

    /// A planned main that only `*=main` names (S8).
    pub(crate) fn unnamed_main(plan: &Plan, name: &str) -> Self {
        let member = Member::new(name, Role::Main, usize::MAX);
        Self::new(member, plan.links_of_unnamed_main(), Awaited::ByNobody)
    }

    /// Whether an exit with that code stops the pod (R9).
    pub(crate) fn is_fatal(&self, code: u32) -> bool {
        match self.member.fatal {
            Some(Fatal::Exit) => true,
            Some(Fatal::Failure) => code != 0,
            None => false,
        }
    }

    /// Whether a condition on this member holds.
    pub(crate) fn satisfies(&self, condition: Condition) -> bool {
        match condition {
            Condition::Started => self.gate >= GateState::Started || self.is_done(),
            Condition::Ready => self.gate == GateState::Open || self.is_done(),
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
}

impl MemberState {
    /// A caller asks for the end. The time of the first request counts: a kubelet's SIGKILL comes a grace period later.
    pub(crate) fn ask(&mut self, how: Ask, fresh_until: PodTime) {
        let first = self.asked.unwrap_or(Asked { how, fresh_until });
        let how = if first.is_signal() { Ask::Signal } else { how };
        self.asked = Some(Asked { how, ..first });
    }
}

impl MemberState {
    pub(crate) fn inspected_part(&self) -> InspectedPart {
        match self.duty {
            PairRole::Active => InspectedPart::Planned(self.member.role),
            PairRole::Standby => InspectedPart::Standby,
        }
    }

    pub(crate) fn inspected_gate(&self) -> Option<(Gate, GateProgress)> {
        let progress = match self.gate {
            GateState::Closed => GateProgress::Closed,
            GateState::Started => GateProgress::Started,
            GateState::Open => GateProgress::Open,
        };
        (self.is_awaited == Awaited::BySomebody).then(|| (self.member.gate.clone(), progress))
    }
}

impl fmt::Display for MemberState {
    /// As messages name it: `sidecar "proxy"`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {:?}", self.member.role, self.member.name)
    }
}
