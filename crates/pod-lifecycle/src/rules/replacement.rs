//! Containers that a caller stopped alone, and whether they come back (T15).
//!
//! A kubelet recreates a container that it killed itself in the same sync, whatever the code and the policy (a liveness
//! probe, another image), but not if the kubelet is restarted in between or the pull fails. The shim cannot know: for
//! `replace-wait` such an end completes nothing and fails nothing; after that it counts like any other. Under Never callers
//! recreate nothing else; podshim ends what waits for a container that will not come back (I8).
//!
//! Owns the consequences. Never decides which members are lost, or when: `questions::losses` does. Changes: member, rounds.

use pod_spec::Role;

use crate::questions::losses::{Loss, loss_of, losses};
use crate::rules::failure::{fail_pod, stop_if_fatal};
use crate::rules::gate::open_gate;
use crate::state::State;

/// R4: under Never no caller restarts a sidecar, and the pod goes on without it. A native sidecar comes back (I8): its
/// gate opens when it is ready.
pub(crate) fn go_on_without(pod: &mut State, index: usize) {
    let state = pod.member(index);
    let comes_back = state.is_native() || !pod.recreates_nothing();
    if !pod.is_stopping() && state.role() == Role::Sidecar && !comes_back {
        let line = format!("{state} is not restarted: the pod goes on without it");
        pod.note(line);
        open_gate(pod, index);
    }
}

/// T15: lets ends count whose wait is over without a Create.
pub(crate) fn count_ends(pod: &mut State) {
    let now = pod.now();
    for index in 0..pod.members().len() {
        let Some(code) = pod.member_mut(index).let_end_count(now) else { continue };
        pod.mark_changed();
        stop_if_fatal(pod, index, code);
    }
    let due = losses(pod).into_iter().find(|(_, at)| now >= *at);
    let Some((index, _)) = due else { return };
    match loss_of(pod, index) {
        Loss::GoesOn => {
            let line = format!("{} was not recreated: the pod goes on without it", pod.member(index));
            pod.note(line);
            open_gate(pod, index);
        }
        Loss::FailsPod(reason) => fail_pod(pod, index, reason),
    }
}

/// A program of the pod runs. If it is a main's, another round has certainly begun (J11).
pub(crate) fn main_runs(pod: &mut State, index: usize) {
    if pod.member(index).role() == Role::Main {
        pod.rounds.main_runs();
    }
}
