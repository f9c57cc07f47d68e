//! Whether the pod is complete (J1, J5, J6, J11), and what of it is left.
//!
//! Owns what a finished job is. Changes nothing: what follows is `rules::completion`.

use pod_spec::{RestartMode, RestartPolicy, Role};

use crate::container::Container;
use crate::container::phase::Phase;
use crate::interface::time::PodTime;
use crate::member::MemberState;
use crate::state::State;

/// J1, J6, J11: whether all named mains are final and the policy says that this is the end.
pub(crate) fn is_complete(pod: &State) -> bool {
    let policy = pod.policy();
    if !pod.has_plan() || policy == RestartPolicy::Always {
        return false;
    }
    // J11: a main whose start is under way is about to run.
    let another_round = another_round_until(pod).is_some();
    let runs = |(state, container): (&MemberState, &Container)| {
        // T18: the mains of another round come after its inits.
        let counts = state.role() == Role::Main || (state.role() == Role::Init && another_round);
        counts && container.is_unfinished()
    };
    let is_done = |state: &MemberState, code| policy == RestartPolicy::Never || is_last(state, code);
    let are_done = pod.mains().all(|state| state.counted_code().is_some_and(|code| is_done(state, code)));
    are_done && !pod.planned().any(runs)
}

/// J3: whether each main has ended with 0, as its callers see it.
pub(crate) fn mains_succeeded(pod: &State) -> bool {
    pod.mains().all(|state| state.counted_code() == Some(0))
}

/// J5, J1: under OnFailure a main that failed is not done, as its caller restarts it; unless its own policy is another (R13, R15).
fn is_last(state: &MemberState, code: u32) -> bool {
    let own = match state.member().restart.map(|restart| (restart.mode, restart.codes)) {
        Some((RestartMode::Never, _)) => true,
        Some((RestartMode::OnFailure, codes)) => !codes.contains(code) && state.start_failure().is_none(),
        Some((RestartMode::Always | RestartMode::Visible, _)) | None => false,
    };
    own || code == 0
}

/// J11: until when podshim leaves a complete pod alone. What its caller creates again after the end of a round may
/// be the start of another round, whose mains may come within `replace-wait`.
pub(crate) fn completion_waits_until(pod: &State) -> Option<PodTime> {
    another_round_until(pod).filter(|until| pod.now() < *until)
}

/// Until when the mains may come of a round that has begun with the recreation of another container; `None` if none has.
fn another_round_until(pod: &State) -> Option<PodTime> {
    let of_this_round =
        pod.mains().any(|state| state.ended().is_some_and(|ended| ended.is_of_round(pod.rounds.number())));
    pod.rounds.another_until().filter(|_| !of_this_round)
}

/// J1, J7: whether the pod is to be stopped as it is complete, now or once it is no longer left alone.
pub(crate) fn is_to_complete(pod: &State) -> bool {
    !pod.is_stopping() && is_complete(pod) && something_is_left(pod)
}

/// Whether anything of a complete pod still lives.
fn something_is_left(pod: &State) -> bool {
    pod.planned().any(|(_, container)| {
        container.is_unfinished()
            || matches!(container.phase(), Phase::Held(_) | Phase::Hidden { .. })
            || container.is_held_without_a_process()
    })
}

/// T14: whether containers are left in a caller's stop whose own stop may be on its way.
pub(crate) fn others_may_be_stopped_yet(pod: &State) -> bool {
    let by_caller = pod.stop().is_some_and(|stop| !stop.is_ours());
    by_caller
        && pod.callers_stop.until().is_some_and(|until| pod.now() < until)
        && pod.planned().any(|(state, container)| container.lives_for_callers() && state.asked().is_none())
}
