//! The pod as an operator sees it: a copy of what is known at one moment.

use crate::container::Container;
use crate::container::phase::{Part, Phase};
use crate::interface::id::{ContainerId, Target};
use crate::interface::inspection::{InspectedContainer, InspectedPart, Inspection, MissingMain, PodOutcome};
use crate::interface::outcome::Refusal;
use crate::interface::time::PodTime;
use crate::interface::view::{Status, View};
use crate::member::MemberState;
use crate::member::evidence::Ended;
use crate::questions::completion::is_complete;
use crate::questions::holds::hold_reason;
use crate::state::State;

/// The pod as it is; `now` is needed for the times that are left.
pub(crate) fn inspect_pod(pod: &State, now: PodTime) -> Inspection {
    let members = pod.members().iter().enumerate().filter(|(index, _)| !pod.is_vacant(*index));
    let planned = members.map(|(index, state)| match pod.current(index) {
        Some(container) => inspect_container(pod, container, now),
        None => inspect_missing(state),
    });
    let of_part = |part: Part| {
        let containers = pod.containers().filter(move |container| container.part() == part);
        containers.map(move |container| inspect_container(pod, container, now))
    };
    let containers = of_part(Part::Sandbox).chain(planned).chain(of_part(Part::Passthrough)).collect();
    Inspection {
        stop: pod.stop().map(|stop| stop.inspect(now)),
        outcome: pod_outcome(pod),
        missing_main: missing_main(pod),
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

/// A main of the plan that no caller has created (U10), as long as that matters.
pub(crate) fn missing_main(pod: &State) -> Option<MissingMain> {
    if pod.is_stopping() || pod_outcome(pod).is_some() {
        return None;
    }
    let main = pod.mains().find(|state| state.was_never_created())?;
    Some(MissingMain { main: main.to_string(), policy: pod.policy() })
}

/// What the driver keeps of a container that is gone: what it was to the pod, and how often podshim restarted it
/// (R4).
pub(crate) fn part_and_restarts(pod: &State, id: &ContainerId) -> Option<(InspectedPart, u32)> {
    let container = pod.container(id)?;
    Some((inspected_part(pod, container), container.restarts.count()))
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
    let shown_exit = container.view(pod.anchor_pid()).and_then(|view| view.exit);
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
        held_for: hold_reason(pod, container.id()),
        restarts: container.restarts.count(),
        real_exit,
        shown_exit,
        pending_signal: container.ending.held_signal().map(|(signal, _)| signal),
        kill_in: container.ending.kill_at().filter(|_| container.has_process()).map(|at| at.since(now)),
        restart_in,
    }
}

fn inspect_missing(state: &MemberState) -> InspectedContainer {
    InspectedContainer {
        gate: state.inspected_gate(),
        real_exit: state.ended().map(Ended::real).or(state.completed()),
        ..InspectedContainer::not_created(&state.member().name, state.inspected_part())
    }
}

/// What callers see of a container or exec.
///
/// # Errors
/// NotFound for a container or exec that does not exist or is still being created.
pub(crate) fn view_of(pod: &State, target: &Target) -> Result<View, Refusal> {
    let view = pod.container(&target.container).and_then(|container| match &target.exec {
        None => container.view(pod.anchor_pid()),
        Some(exec) => {
            let mut view = container.exec(exec)?.view();
            // The freezer stops execs too, and the runc shim reports each of them as paused.
            if container.view(pod.anchor_pid()).is_some_and(|own| own.status == Status::Paused) {
                view.status = Status::Paused;
            }
            Some(view)
        }
    });
    view.ok_or_else(|| Refusal::not_found(format!("{target} not found")))
}
