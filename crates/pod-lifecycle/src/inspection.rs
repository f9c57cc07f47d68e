//! The pod as an operator sees it: a copy of what is known at one moment. Owns the projection of the tables to public
//! types; decides and changes nothing.

use std::time::Duration;

use pod_spec::{Gate, RestartPolicy, Role, Signal};

use crate::budget::Budget;
use crate::container::{Container, Freezer, Part, Phase};
use crate::event::{ContainerId, Exit};
use crate::evidence::Ended;
use crate::member::{Awaited, GateState, MemberState};
use crate::pod::Pod;
use crate::shutdown::{Stop, StopCause};
use crate::standby::Duty;
use crate::time::PodTime;

/// What there is to know of a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// The stop under way, if one is.
    pub stop: Option<InspectedStop>,
    /// How the pod ended, if its restart policy says that it has (J1).
    pub outcome: Option<PodOutcome>,
    /// A main of the plan that no caller has created (U10), in a pod that has not ended and is not being stopped. The
    /// driver knows whether the caller is still at work.
    pub missing_main: Option<MissingMain>,
    /// The pause container, then the plan in its order, then all others.
    pub containers: Vec<InspectedContainer>,
}

/// How a pod ended (J1, I2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PodOutcome {
    /// All mains exited with 0.
    Succeeded,
    /// A main failed, or an init or a sidecar under Never.
    Failed,
}

/// A main that no caller has created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingMain {
    /// The main, as messages name it: `main "app"`.
    pub main: String,
    /// The restart policy: it decides whether the pod would end.
    pub policy: RestartPolicy,
}

/// A stop under way (T12).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InspectedStop {
    /// Why it began.
    pub reason: StopReason,
    /// What is left of its time.
    pub budget: BudgetLeft,
}

/// Why a stop began (T12, K11, J1, I2, R9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopReason {
    /// A caller stops the containers.
    Caller,
    /// The sandbox is stopped, or died.
    Sandbox,
    /// An operator, or a signal to the shim.
    Requested,
    /// A SIGKILL where `zero-grace=order`.
    ZeroGrace,
    /// The mains are done.
    Completed,
    /// An init failed under Never.
    InitFailed,
    /// A sidecar could not be started under Never, or was not recreated.
    SidecarFailed,
    /// A fatal container ended.
    Fatal,
}

/// What is left of a stop's budget (T5, T6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BudgetLeft {
    /// The caller counts the time.
    Callers,
    /// The time left; then every container that is left gets a stop signal.
    Until(Duration),
    /// Every container has had one; the time left until SIGKILL.
    LastCall(Duration),
    /// Everything has been killed.
    Spent,
}

/// One container, or a member of the plan that does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InspectedContainer {
    /// containerd's id; `None` where there is no such container.
    pub id: Option<ContainerId>,
    /// Its name in the plan.
    pub name: String,
    /// What it is to the pod.
    pub part: InspectedPart,
    /// Where it is in its life.
    pub state: InspectedState,
    /// Its process, if it has one of its own.
    pub pid: Option<u32>,
    /// What opens its gate, if anything waits for that, and whether it is open.
    pub gate: Option<(Gate, GateProgress)>,
    /// Why it is held.
    pub held_for: Option<String>,
    /// Its restarts by podshim since its last good run (R4).
    pub restarts: u32,
    /// How its last run really ended.
    pub real_exit: Option<Exit>,
    /// How callers see that exit (J2).
    pub shown_exit: Option<Exit>,
    /// A stop signal that waits for its turn (T3), or for the container's hooks.
    pub pending_signal: Option<Signal>,
    /// The time until SIGKILL is due (T7, T8).
    pub kill_in: Option<Duration>,
    /// The time until its next restart (R4).
    pub restart_in: Option<Duration>,
}

/// What a container is to its pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InspectedPart {
    /// The pause container.
    Sandbox,
    /// Not in the plan (S8).
    Passthrough,
    /// In the plan.
    Planned(Role),
    /// The standby of a pair (V1).
    Standby,
}

/// Where a container is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InspectedState {
    /// In the plan, and no caller has created it (U10).
    NotCreated,
    /// Being created.
    Creating,
    /// Created, and not started by its caller.
    Created,
    /// Started by its caller; its program waits (U7).
    Held,
    /// Its program is being started.
    Starting,
    /// Its program runs.
    Running,
    /// Frozen.
    Paused,
    /// It waits for its next restart (R4).
    BackingOff,
    /// It is being recreated (R6).
    Restarting,
    /// A completed init whose exit its caller does not see yet, or which was created again (I4, I5).
    Completed,
    /// It is ending.
    Ending,
    /// It has ended, and its caller sees that.
    Stopped,
}

/// How far a gate is (U1, U2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateProgress {
    /// No check has seen its program run.
    Closed,
    /// Its program runs, and is not ready.
    Started,
    /// Open.
    Open,
}

impl Pod {
    /// The pod as it is; `now` is needed for the times that are left.
    pub fn inspect(&self, now: PodTime) -> Inspection {
        let members = self.members.iter().enumerate().filter(|(index, _)| !self.is_vacant(*index));
        let planned = members.map(|(index, state)| match self.current(index) {
            Some(container) => self.inspect_container(container, now),
            None => self.inspect_missing(state),
        });
        let of_part = |part: Part| {
            let containers = self.containers.values().filter(move |container| container.part == part);
            containers.map(move |container| self.inspect_container(container, now))
        };
        let containers = of_part(Part::Sandbox).chain(planned).chain(of_part(Part::Passthrough)).collect();
        Inspection {
            stop: self.stop.as_ref().map(|stop| stop.inspect(now)),
            outcome: self.outcome(),
            missing_main: self.missing_main(),
            containers,
        }
    }

    fn outcome(&self) -> Option<PodOutcome> {
        let succeeded = |state: &MemberState| state.ended.as_ref().and_then(Ended::counted_code) == Some(0);
        match (self.is_complete(), &self.failure) {
            (true, _) if self.mains().all(succeeded) => Some(PodOutcome::Succeeded),
            (true, _) => Some(PodOutcome::Failed),
            (false, Some(_)) if self.recreates_nothing() => Some(PodOutcome::Failed),
            (false, _) => None,
        }
    }

    /// A main of the plan that no caller has created (U10), as long as that matters.
    pub fn missing_main(&self) -> Option<MissingMain> {
        if self.stop.is_some() || self.outcome().is_some() {
            return None;
        }
        let main = self.mains().find(|state| state.was_never_created())?;
        Some(MissingMain { main: main.to_string(), policy: self.policy() })
    }

    /// What the driver keeps of a container that is gone: what it was to the pod, and how often podshim restarted it
    /// (R4).
    pub fn part_and_restarts(&self, id: &ContainerId) -> Option<(InspectedPart, u32)> {
        let container = self.containers.get(id)?;
        Some((self.inspected_part(container), container.restarts.count()))
    }

    fn inspected_part(&self, container: &Container) -> InspectedPart {
        match (container.part, container.member()) {
            (Part::Sandbox, _) => InspectedPart::Sandbox,
            (_, Some(index)) => self.members[index].inspected_part(),
            (_, None) => InspectedPart::Passthrough,
        }
    }

    fn inspect_container(&self, container: &Container, now: PodTime) -> InspectedContainer {
        let state = container.member().map(|index| &self.members[index]);
        let shown_exit = container.view(self.anchor_pid()).and_then(|view| view.exit);
        let real_exit = match &container.phase {
            Phase::BackingOff { last, .. } | Phase::Recreating { last, .. } => Some(*last),
            Phase::Draining { exit, .. } | Phase::Hidden { exit } | Phase::Spent { exit } => Some(*exit),
            _ => shown_exit
                .and_then(|shown| state.and_then(|state| Some(state.ended.as_ref()?.real())).or(Some(shown))),
        };
        let restart_in = match container.phase {
            Phase::BackingOff { until, .. } => Some(until.since(now)),
            _ => None,
        };
        InspectedContainer {
            id: Some(container.id.clone()),
            name: container.spec.name.clone(),
            part: self.inspected_part(container),
            state: container.inspected_state(),
            pid: container.has_process().then_some(container.pid),
            gate: state.and_then(MemberState::inspected_gate),
            held_for: self.hold_reason(&container.id),
            restarts: container.restarts.count(),
            real_exit,
            shown_exit,
            pending_signal: container.stop.held_signal.map(|(signal, _)| signal),
            kill_in: container.stop.kill_at.filter(|_| container.has_process()).map(|at| at.since(now)),
            restart_in,
        }
    }

    fn inspect_missing(&self, state: &MemberState) -> InspectedContainer {
        InspectedContainer {
            gate: state.inspected_gate(),
            real_exit: state.ended.as_ref().map(Ended::real).or(state.completed),
            ..InspectedContainer::not_created(&state.member.name, state.inspected_part())
        }
    }
}

impl InspectedContainer {
    /// A container of which only the name exists.
    pub fn not_created(name: &str, part: InspectedPart) -> Self {
        Self {
            id: None,
            name: name.to_owned(),
            part,
            state: InspectedState::NotCreated,
            pid: None,
            gate: None,
            held_for: None,
            restarts: 0,
            real_exit: None,
            shown_exit: None,
            pending_signal: None,
            kill_in: None,
            restart_in: None,
        }
    }
}

impl MemberState {
    fn inspected_part(&self) -> InspectedPart {
        match self.duty {
            Duty::Active => InspectedPart::Planned(self.member.role),
            Duty::Standby => InspectedPart::Standby,
        }
    }

    fn inspected_gate(&self) -> Option<(Gate, GateProgress)> {
        let progress = match self.gate {
            GateState::Closed => GateProgress::Closed,
            GateState::Started => GateProgress::Started,
            GateState::Open => GateProgress::Open,
        };
        (self.is_awaited == Awaited::BySomebody).then(|| (self.member.gate.clone(), progress))
    }
}

impl Container {
    fn inspected_state(&self) -> InspectedState {
        match &self.phase {
            Phase::Creating { .. } => InspectedState::Creating,
            Phase::Created | Phase::Prepared => InspectedState::Created,
            Phase::Held(_) => InspectedState::Held,
            Phase::Starting { .. } | Phase::Restoring { .. } => InspectedState::Starting,
            Phase::Running { .. } if self.freezer == Freezer::Paused => InspectedState::Paused,
            Phase::Running { .. } => InspectedState::Running,
            Phase::BackingOff { .. } => InspectedState::BackingOff,
            Phase::Recreating { .. } => InspectedState::Restarting,
            Phase::Hidden { .. } | Phase::Spent { .. } => InspectedState::Completed,
            Phase::Ending { .. } | Phase::Draining { .. } => InspectedState::Ending,
            Phase::Stopped { .. } | Phase::Removing { .. } => InspectedState::Stopped,
        }
    }
}

impl Stop {
    pub(crate) fn inspect(&self, now: PodTime) -> InspectedStop {
        InspectedStop {
            reason: match self.cause {
                StopCause::Caller => StopReason::Caller,
                StopCause::Sandbox(_) => StopReason::Sandbox,
                StopCause::Requested => StopReason::Requested,
                StopCause::ZeroGrace => StopReason::ZeroGrace,
                StopCause::Completed => StopReason::Completed,
                StopCause::InitFailed => StopReason::InitFailed,
                StopCause::SidecarFailed => StopReason::SidecarFailed,
                StopCause::Fatal => StopReason::Fatal,
            },
            budget: match self.budget {
                Budget::Callers => BudgetLeft::Callers,
                Budget::Until { at, .. } => BudgetLeft::Until(at.since(now)),
                Budget::LastCall { kill_at } => BudgetLeft::LastCall(kill_at.since(now)),
                Budget::Spent => BudgetLeft::Spent,
            },
        }
    }
}
