//! Members that no caller recreates (I8, T15).
//!
//! Owns which members are lost, when, and what each loss means. Changes nothing: the consequences are `rules::replacement`.

use pod_spec::Role;

use crate::container::Container;
use crate::interface::time::{PodTime, show_duration};
use crate::member::MemberState;
use crate::member::evidence::Ended;
use crate::questions::completion::is_complete;
use crate::questions::order::first_blocker;
use crate::state::State;

/// What happens when a member does not come back (I8).
pub(crate) enum Loss {
    /// Its gate was open once: the pod goes on without it.
    GoesOn,
    /// Nothing that waits for it can ever start.
    FailsPod(String),
}

/// Under Never: the members that no caller recreates, whose gate is closed or whose work is not done, and that a
/// held container waits for or a caller stopped; and when podshim gives them up.
pub(crate) fn losses(pod: &State) -> Vec<(usize, PodTime)> {
    if !pod.recreates_nothing() || pod.is_stopping() || pod.failure().is_some() {
        return Vec::new();
    }
    let held: Vec<usize> = pod
        .planned()
        .filter(|(_, container)| container.is_held())
        .filter_map(|(_, container)| Some(first_blocker(pod, container.member()?)?.earlier))
        .collect();
    let living = pod.planned().any(|(_, container)| container.lives_for_callers());
    (0..pod.members().len())
        .filter(|index| living && is_lost(pod, *index))
        .filter(|index| held.contains(index) || pod.member(*index).asked().is_some())
        .filter_map(|index| {
            let ended = pod.member(index).ended()?;
            if has_gone_with_its_pod(pod, index) {
                // A kubelet with native sidecars recreates it a moment after its end.
                let quiet = pod.rounds.created_at() + pod.lone_stop_window();
                return Some((index, quiet.max(ended.evident_until())));
            }
            Some((index, ended.replace_by().max(pod.rounds.created_at() + pod.replace_wait())))
        })
        .collect()
}

/// When podshim gives a member up (I8).
pub(crate) fn replacement_deadline_of(pod: &State, index: usize) -> Option<PodTime> {
    losses(pod).into_iter().find(|(lost, _)| *lost == index).map(|(_, at)| at)
}

/// Whether a member has ended without what others wait for.
fn is_lost(pod: &State, index: usize) -> bool {
    let state = pod.member(index);
    let unmet = match state.role() {
        Role::Init => state.completed().is_none(),
        Role::Sidecar => !state.is_native() && !state.gate.is_open() && state.pair.is_active(),
        Role::Main => false,
    };
    unmet && pod.is_gone(index)
}

/// Whether podshim itself ended a sidecar that was ready once, when the pod was complete: no caller recreates what has shown 0, but
/// one that makes the whole pod once more, in one go (J11).
fn has_gone_with_its_pod(pod: &State, index: usize) -> bool {
    let state = pod.member(index);
    // A main that could not run before is held once more, and the pod is complete by what it ended with (U6). One that has ended well does
    // not run again.
    let is_made_again = || {
        let runs_again = |(it, container): (&MemberState, &Container)| {
            let has_succeeded = it.ended().is_some_and(Ended::is_success);
            it.role() == Role::Main && container.is_held() && !has_succeeded
        };
        pod.planned().any(runs_again)
    };
    (!is_complete(pod) || is_made_again())
        && state.role() == Role::Sidecar
        && state.gate.was_ever_open()
        && state
            .ended()
            .is_some_and(|ended| ended.counted_code().is_some() && !ended.is_of_round(pod.rounds.number()))
}

pub(crate) fn loss_of(pod: &State, index: usize) -> Loss {
    let state = pod.member(index);
    if state.role() == Role::Sidecar && state.gate.was_ever_open() {
        return Loss::GoesOn;
    }
    let code = state.ended().map_or(0, |ended| ended.real().code);
    let by = if state.asked().is_some() { "was stopped by its caller" } else { "has ended" };
    let wait = show_duration(pod.replace_wait());
    Loss::FailsPod(format!("{by} with {code} and was not recreated within {wait}"))
}
