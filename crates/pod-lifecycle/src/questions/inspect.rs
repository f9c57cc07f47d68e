//! The pod as an operator and as callers see it: a copy of what is known at one moment.
//!
//! Owns the projection of the tables to public types. Changes nothing.

use pod_spec::{Condition, RestartPolicy, Role};

use crate::container::Container;
use crate::container::phase::{Part, Phase};
use crate::interface::id::{ContainerId, Target};
use crate::interface::inspection::{
    InspectedContainer, InspectedPart, Inspection, Missing, MissingEnd, PodOutcome,
};
use crate::interface::outcome::Refusal;
use crate::interface::time::PodTime;
use crate::interface::view::{Status, View};
use crate::member::MemberState;
use crate::member::evidence::Ended;
use crate::questions::completion::is_complete;
use crate::questions::grace::last_signals;
use crate::questions::holds::hold_reason;
use crate::state::State;

/// The pod as it is; `now` is needed for the times that are left.
pub(crate) fn inspect_pod(pod: &State, now: PodTime) -> Inspection {
    let members = pod.members().iter().enumerate().filter(|(index, _)| !pod.is_vacant(*index));
    let planned = members.map(|(index, state)| match pod.current(index) {
        Some(container) => inspect_container(pod, container, now),
        None => inspect_missing(pod, state),
    });
    let of_part = |part: Part| {
        let containers = pod.containers().filter(move |container| container.part() == part);
        containers.map(move |container| inspect_container(pod, container, now))
    };
    let containers = of_part(Part::Sandbox).chain(planned).chain(of_part(Part::Passthrough)).collect();
    Inspection {
        stop: pod.stop().map(|stop| stop.inspect(now)),
        outcome: pod_outcome(pod),
        missing: missing(pod),
        kubelets_own: pod.has_unnamed_mains().then(|| pod.facts().iter().cloned().collect()),
        containers,
    }
}

fn pod_outcome(pod: &State) -> Option<PodOutcome> {
    let succeeded = |state: &MemberState| state.counted_code() == Some(0);
    match (is_complete(pod), pod.failure()) {
        (true, _) if pod.mains().all(succeeded) => Some(PodOutcome::Succeeded),
        (true, _) => Some(PodOutcome::Failed),
        (false, Some(_)) if pod.recreates_nothing() => Some(PodOutcome::Failed),
        (false, _) => None,
    }
}

/// What no caller has created of the plan (U10), as long as that matters.
pub(crate) fn missing(pod: &State) -> Option<Missing> {
    if pod.is_stopping() || pod_outcome(pod).is_some() {
        return None;
    }
    // One of a pair is enough, and it is no mistake to create the other one for a switch only (V1).
    let is_missing = |index: &usize| {
        let never_created = |index: usize| pod.member(index).was_never_created();
        never_created(*index)
            && pod.partner(*index).is_none_or(|other| *index < other && never_created(other))
    };
    let missing = (0..pod.members().len()).filter(|index| !pod.is_vacant(*index)).filter(is_missing);
    let missing: Vec<_> = missing.map(|index| pod.member(index)).collect();
    let a_main = missing.iter().any(|state| state.role() == Role::Main);
    let ends_without = match pod.policy() {
        RestartPolicy::OnFailure | RestartPolicy::Never if a_main => MissingEnd::Never,
        _ => MissingEnd::AsPlanned,
    };
    let members: Vec<_> = missing.into_iter().map(ToString::to_string).collect();
    (!members.is_empty()).then_some(Missing { members, ends_without })
}

/// What the driver keeps of a container that is gone: what it was to the pod, and how often podshim restarted it: since its
/// last good run (R4), and at all.
pub(crate) fn part_and_restarts(pod: &State, id: &ContainerId) -> Option<(InspectedPart, [u32; 2])> {
    let container = pod.container(id)?;
    let restarts = [container.restarts.count(), container.restarts.total()];
    Some((inspected_part(pod, container), restarts))
}

pub(crate) fn inspected_part(pod: &State, container: &Container) -> InspectedPart {
    match (container.part(), container.member()) {
        (Part::Sandbox, _) => InspectedPart::Sandbox,
        (_, Some(index)) => pod.member(index).inspected_part(),
        (_, None) => InspectedPart::Passthrough,
    }
}

fn inspect_container(pod: &State, container: &Container, now: PodTime) -> InspectedContainer {
    let state = container.member().map(|index| pod.member(index));
    let shown_exit = container.view(pod.stand_in_pid()).exit;
    let real_exit = match container.phase() {
        Phase::BackingOff { last, .. } | Phase::Recreating { last, .. } => Some(*last),
        Phase::Draining { exit, .. } | Phase::Hidden { exit } | Phase::CompletedAgain { exit } => Some(*exit),
        _ => shown_exit.and_then(|shown| state.and_then(|state| Some(state.ended()?.real())).or(Some(shown))),
    };
    let restart_in = match container.phase() {
        Phase::BackingOff { until, .. } => Some(until.since(now)),
        _ => None,
    };
    InspectedContainer {
        id: Some(container.id().clone()),
        name: container.spec().name.clone(),
        part: inspected_part(pod, container),
        state: container.inspected_state(),
        pid: container.has_process().then_some(container.pid()),
        gate: state.and_then(MemberState::inspected_gate),
        after: container.member().map(|index| waits_of(pod, pod.member(index))).unwrap_or_default(),
        held_for: hold_reason(pod, container.id()),
        restarts: container.restarts.count(),
        restarts_total: container.restarts.total(),
        real_exit,
        shown_exit,
        pending_signal: container.ending.held_signal().map(|(signal, _)| signal),
        kill_in: kill_at(pod, container).map(|at| at.since(now)),
        restart_in,
    }
}

/// When SIGKILL is due by its own time or by its part of the pod's.
fn kill_at(pod: &State, container: &Container) -> Option<PodTime> {
    let part = last_signals(pod, container).map(|(_, kill)| kill);
    [container.ending.kill_at(), part].into_iter().flatten().min().filter(|_| container.has_process())
}

/// What it waits for when it starts. What only its stop has to do with is left out.
fn waits_of(pod: &State, state: &MemberState) -> Vec<(String, Condition)> {
    let waits = state.links().iter().filter_map(|link| Some((link.earlier, link.until?)));
    let seen = waits.filter(|(earlier, _)| !pod.is_vacant(*earlier));
    seen.map(|(earlier, until)| (pod.member(earlier).member().name.clone(), until)).collect()
}

fn inspect_missing(pod: &State, state: &MemberState) -> InspectedContainer {
    InspectedContainer {
        after: waits_of(pod, state),
        gate: state.inspected_gate(),
        real_exit: state.ended().map(Ended::real).or(state.completed()),
        ..InspectedContainer::not_created(&state.member().name, state.inspected_part())
    }
}

/// What callers see of a container or exec.
///
/// # Errors
/// NotFound for a container or exec that does not exist.
pub(crate) fn view_of(pod: &State, target: &Target) -> Result<View, Refusal> {
    let view = pod.container(&target.container).and_then(|container| match &target.exec {
        None => Some(container.view(pod.stand_in_pid())),
        Some(exec) => {
            let mut view = container.exec(exec)?.view();
            // The freezer stops execs too, and the runc shim reports each of them as paused.
            if container.view(pod.stand_in_pid()).status == Status::Paused {
                view.status = Status::Paused;
            }
            Some(view)
        }
    });
    view.ok_or_else(|| Refusal::not_found(format!("{target} not found")))
}
