//! Which ends are evidence of a stop of the pod (T12), and which of a stop of one container alone (T15, T16).
//!
//! Owns when evidence goes stale. Changes nothing: the facts are `member::evidence`.

use pod_spec::Role;

use crate::container::Container;
use crate::interface::spec::KubeletHook;
use crate::member::MemberState;
use crate::member::evidence::{Ask, EndedBy};
use crate::state::State;

/// Whether a caller has asked for a graceful end of any member in this round, and that still is evidence (K11).
pub(crate) fn stop_was_asked(pod: &State) -> bool {
    let by_signal = |index: usize| pod.member(index).asked() == Some(Ask::Signal);
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
    if is_asked(pod, container) && container.start_error().is_none() {
        EndedBy::Caller
    } else {
        EndedBy::Other
    }
}

/// Whether a caller has asked for a container's end, in this round or in a stop that was taken back (T12).
pub(crate) fn is_asked(pod: &State, container: &Container) -> bool {
    let asked = container.member().is_some_and(|index| pod.member(index).asked().is_some());
    asked || container.ending.is_asked()
}

/// T16: the sidecar whose stop can only be a stop of that container alone, when no other stop has come within the window.
pub(crate) fn stopped_alone(pod: &State) -> Option<&Container> {
    let index = pod.callers_stop.only().filter(|_| !pod.is_stopping())?;
    let sidecar = pod.current(index).filter(|_| pod.member(index).role() == Role::Sidecar)?;
    let mut mains = pod
        .planned()
        .filter(|(state, other)| state.role() == Role::Main && other.lives_for_callers())
        .peekable();
    let judged = sidecar.is_unfinished() && sidecar.ending.held_signal().is_some() && mains.peek().is_some();
    // F9: a stop of the pod would have come for them at once.
    (judged && mains.all(|(_, main)| main.spec().kubelet == Some(KubeletHook::None))).then_some(sidecar)
}
