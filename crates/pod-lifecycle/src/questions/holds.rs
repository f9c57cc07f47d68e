//! Whether a container may start, and what it waits for, in words (S2, I1, S6, S9, S13, U7, U13).
//!
//! Owns the reasons. Changes nothing: when a hold ends and when its lines are written is `rules::startup`.

use pod_spec::{Role, Source};

use crate::container::Container;
use crate::container::hold::{Obstacle, Wait};
use crate::container::phase::{Phase, Program};
use crate::interface::id::ContainerId;
use crate::interface::spec::{Caller, KubeletType, StartBarrier};
use crate::interface::time::show_duration;
use crate::questions::losses::{Loss, loss_of, replacement_deadline_of};
use crate::questions::order::{first_blocker, stands_by};
use crate::questions::restarts::is_restart_wanted;
use crate::state::State;

/// The start order in one place (S2, I1, S3, S6, T11). Where nothing is in the way nothing is held (S9).
pub(crate) fn may_start(pod: &State, container: &Container) -> bool {
    let Some(index) = container.member() else { return true };
    if stands_by(pod, container) {
        return false;
    }
    if pod.is_stopping() || pod.failure().is_some() && !is_tried_again(pod, container) {
        // R2: only a container that ran before and that another one still needs.
        return !container.never_ran() && is_restart_wanted(pod, container);
    }
    let state = pod.member(index);
    state.gate.is_released() || is_ordered_above(pod, container) || first_blocker(pod, index).is_none()
}

/// S13: whether something above the CRI orders the container's start, and might wait for what podshim would hold behind it.
fn is_ordered_above(pod: &State, container: &Container) -> bool {
    let spec = container.spec();
    let is_ordered = spec.start_barrier == StartBarrier::Open || spec.kubelet_type == Some(KubeletType::Init);
    is_ordered && pod.settings().is_some_and(|settings| settings.source == Source::Kruise)
}

/// S13: what the plan would hold a container for, were its start not ordered above the CRI.
pub(crate) fn overruled(pod: &State, container: &Container) -> Option<String> {
    let index = container.member().filter(|_| is_ordered_above(pod, container))?;
    let is_first = !pod.is_stopping() && !pod.member(index).gate.is_released();
    let blocker = first_blocker(pod, index).filter(|_| is_first)?.earlier;
    let orders = match container.spec().start_barrier {
        StartBarrier::Open => "OpenKruise's start barrier",
        StartBarrier::None => "its kubelet",
    };
    let (own, other) = (pod.member(index), pod.member(blocker));
    Some(format!(
        "{own} is not held for {other}: {orders} orders its start, and may itself wait for what podshim would hold"
    ))
}

/// I2: a kubelet with native sidecars recreates a sidecar of a failed pod only if it did not see the failure,
/// because the dead init's container was removed before its next sync. It creates that init next.
pub(crate) fn is_tried_again(pod: &State, container: &Container) -> bool {
    !pod.is_stopping() && is_native(pod, container)
}

/// Whether a kubelet that knows native sidecars created it as one.
pub(crate) fn is_native(pod: &State, container: &Container) -> bool {
    container.member().is_some_and(|index| pod.member(index).is_native())
}

/// Why a container is held, in words for people; `None` if it is not held.
pub(crate) fn hold_reason(pod: &State, id: &ContainerId) -> Option<String> {
    let container = pod.container(id)?;
    container.is_held().then(|| blocker(pod, container))?
}

/// What a held container waits for, in words.
pub(crate) fn blocker(pod: &State, container: &Container) -> Option<String> {
    Some(match wait_of(pod, container)? {
        Wait::EndOfStop => "the end of the pod's stop".to_owned(),
        Wait::PodRestart => "the pod's restart".to_owned(),
        Wait::StandbyOf(other) => {
            format!("its turn, it is the standby of {}", pod.member(other))
        }
        Wait::Member(index, obstacle) => {
            format!("{}: {}", pod.member(index), obstacle_in_words(pod, index, obstacle))
        }
    })
}

pub(crate) fn wait_of(pod: &State, container: &Container) -> Option<Wait> {
    if pod.is_restarting() {
        return Some(Wait::PodRestart);
    }
    if pod.is_stopping() {
        return Some(Wait::EndOfStop);
    }
    if stands_by(pod, container) {
        return Some(Wait::StandbyOf(pod.partner(container.member()?)?));
    }
    let index = first_blocker(pod, container.member()?)?.earlier;
    Some(Wait::Member(index, obstacle_of(pod, index)))
}

/// U13, S8: what may be wrong with the hold of a main that the plan does not name, in words: it may be one of its kubelet's own init
/// containers, before whose end the kubelet creates nothing else.
pub(crate) fn doubt_about(pod: &State, container: &Container) -> Option<String> {
    let index = container.member().filter(|index| pod.is_unnamed(*index))?;
    let Some(Wait::Member(_, Obstacle::NotCreated)) = wait_of(pod, container) else { return None };
    let is_alone = pod.planned().filter(|(_, other)| other.is_held()).count() == 1;
    let name = &pod.member(index).member().name;
    (container.spec().caller == Caller::Cri && is_alone).then(|| {
        format!(
            "held: waiting for {}; if {name:?} is an init container of the pod, its kubelet waits for it, and this never ends: \
             write podshim.io/role.{name}: none",
            blocker(pod, container).unwrap_or_default()
        )
    })
}

fn obstacle_of(pod: &State, index: usize) -> Obstacle {
    let state = pod.member(index);
    if pod.is_gone(index) {
        return match state.ended() {
            _ if state.start_failure().is_some() => Obstacle::CouldNotStart,
            Some(_) if state.asked().is_some() => Obstacle::StoppedByCaller,
            Some(_) => Obstacle::Ended,
            None => Obstacle::NotCreated,
        };
    }
    match pod.current(index).map(|container| (container.phase(), container.program())) {
        Some((Phase::Created, _)) if state.start_failure().is_some() => Obstacle::CouldNotStart,
        Some((Phase::Creating { .. } | Phase::Created, _)) => Obstacle::NotStarted,
        Some((Phase::Held(_), Program::NeverRan)) => Obstacle::Held,
        _ => Obstacle::AtWork,
    }
}

/// For people: in the answer to a Start, in the log and in `podshim ps`.
fn obstacle_in_words(pod: &State, index: usize, obstacle: Obstacle) -> String {
    let state = pod.member(index);
    let code = state.ended().map_or(0, |ended| ended.real().code);
    match obstacle {
        Obstacle::NotCreated => "not created yet".to_owned(),
        Obstacle::CouldNotStart => {
            format!("could not be created: {}", state.start_failure().unwrap_or_default())
        }
        Obstacle::StoppedByCaller => format!("stopped by its caller, {}", recreated_in_words(pod, index)),
        Obstacle::Ended => format!("exited with {code}, {}", recreated_in_words(pod, index)),
        Obstacle::NotStarted => "created, not started yet".to_owned(),
        Obstacle::Held => "held itself".to_owned(),
        Obstacle::AtWork => work_in_words(pod, index),
    }
}

fn work_in_words(pod: &State, index: usize) -> String {
    let Some(container) = pod.current(index) else { return String::new() };
    match (container.phase(), container.probe()) {
        (Phase::BackingOff { last, .. }, _) => format!("exited with {}, backing off", last.code),
        (Phase::Recreating { last, .. }, _) => format!("exited with {}, restarting", last.code),
        (_, Some(probe)) => probe.last_failure().unwrap_or("not ready yet").to_owned(),
        _ if pod.member(index).role() == Role::Sidecar => "not ready yet".to_owned(),
        _ => "still running".to_owned(),
    }
}

/// I8: how long podshim waits for a member that does not come back, and what happens then.
fn recreated_in_words(pod: &State, index: usize) -> String {
    let Some(deadline) = replacement_deadline_of(pod, index) else { return "not recreated yet".to_owned() };
    let what = match loss_of(pod, index) {
        Loss::GoesOn => "goes on without it",
        Loss::FailsPod(_) => "fails",
    };
    format!("recreated within {} or the pod {what}", show_duration(deadline.since(pod.now())))
}
