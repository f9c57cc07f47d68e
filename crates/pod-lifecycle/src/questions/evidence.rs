//! Which ends are evidence of a stop of the pod (T12), and which of a stop of one container alone (T15, T16).
//!
//! Owns when evidence goes stale. Changes nothing: the facts are `member::evidence`.

use pod_spec::Role;

use crate::container::Container;
use crate::container::phase::Phase;
use crate::interface::spec::KubeletHook;
use crate::interface::time::PodTime;
use crate::member::MemberState;
use crate::member::evidence::{Asked, EndedBy};
use crate::state::State;

/// Whether a caller has asked for a graceful end of any member in this round, and that still is evidence (K11).
pub(crate) fn stop_was_asked(pod: &State) -> bool {
    let by_signal = |index: usize| pod.member(index).asked().is_some_and(Asked::is_signal);
    (0..pod.members().len()).any(|index| by_signal(index) && is_evidence(pod, index))
}

/// T12: whether a member's stop is evidence of a stop of the pod. A member that ended a while ago and was not
/// recreated was stopped alone, if a main lives that no caller stopped: that is no evidence.
pub(crate) fn is_evidence(pod: &State, index: usize) -> bool {
    let state = pod.member(index);
    if state.asked().is_none() {
        return false;
    }
    let Some(ended) = state.ended().filter(|_| pod.is_gone(index)) else { return true };
    let unasked_main = |(other, container): (&MemberState, &Container)| {
        other.role() == Role::Main && other.asked().is_none() && container.lives_for_callers()
    };
    ended.is_evident(pod.now()) || !pod.planned().any(unasked_main)
}

/// Who ended a container: its caller, if one has asked for that, or not.
pub(crate) fn ended_by(pod: &State, container: &Container) -> EndedBy {
    let asked = container.member().is_some_and(|index| pod.member(index).asked().is_some());
    if asked && container.start_error().is_none() { EndedBy::Caller } else { EndedBy::Other }
}

/// Whether a sidecar's stop can only be a stop of that container alone.
pub(crate) fn is_stopped_alone(pod: &State, sidecar: &Container) -> bool {
    let mains: Vec<_> = pod
        .planned()
        .filter(|(state, other)| state.role() == Role::Main && other.lives_for_callers())
        .map(|(_, other)| other.spec().kubelet)
        .collect();
    let at_once = |kubelet: &Option<KubeletHook>| *kubelet == Some(KubeletHook::None);
    let own = sidecar.member().and_then(|index| pod.member(index).asked());
    let another = pod.members().iter().enumerate().any(|(index, state)| {
        let judged = pod.current(index).is_some_and(|other| other.lone_stop.is_alone());
        Some(index) != sidecar.member()
            && !judged
            && state
                .asked()
                .zip(own)
                .is_some_and(|(other, own)| other.may_belong_with(own, pod.lone_stop_window()))
    });
    !mains.is_empty() && mains.iter().all(at_once) && !another
}

/// When podshim judges a container's stop.
pub(crate) fn lone_stop_deadline(pod: &State, container: &Container) -> Option<PodTime> {
    let (decide_at, _) = container.lone_stop.open()?;
    let waits = matches!(container.phase(), Phase::Starting { .. } | Phase::Running { .. });
    (waits && !pod.is_stopping() && container.ending.held_signal().is_some()).then_some(decide_at)
}
