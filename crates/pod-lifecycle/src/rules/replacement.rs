//! Ends that count, and members that do not come back (T15, I8, R4).

use pod_spec::Role;

use crate::interface::action::Action;
use crate::questions::losses::{Loss, loss_of, losses};
use crate::rules::failure::{fail_pod, stop_if_fatal};
use crate::rules::gate::open_gate;
use crate::state::State;

/// R4: under Never no caller restarts a sidecar, and the pod goes on without it.
pub(crate) fn go_on_without(pod: &mut State, index: usize) {
    let state = &pod.members[index];
    if pod.stop.is_none() && state.member.role == Role::Sidecar && pod.recreates_nothing() {
        pod.emit_change(Action::Note(format!("{state} is not restarted: the pod goes on without it")));
        open_gate(pod, index);
    }
}

/// T15: lets ends count whose wait is over without a Create.
pub(crate) fn count_ends(pod: &mut State) {
    let now = pod.now;
    for index in 0..pod.members.len() {
        let Some(ended) = &mut pod.members[index].ended else { continue };
        if ended.open_until().is_none_or(|until| now < until) {
            continue;
        }
        ended.counts_now();
        let code = ended.counted_code().unwrap_or_default();
        pod.mark_changed();
        stop_if_fatal(pod, index, code);
    }
    let due = losses(pod).into_iter().find(|(_, at)| now >= *at);
    let Some((index, _)) = due else { return };
    match loss_of(pod, index) {
        Loss::GoesOn => {
            let line = format!("{} was not recreated: the pod goes on without it", pod.members[index]);
            pod.emit_change(Action::Note(line));
            open_gate(pod, index);
        }
        Loss::FailsPod(reason) => fail_pod(pod, index, reason),
    }
}

/// A program of the pod runs. If it is a main's, another round has certainly begun (J11).
pub(crate) fn main_runs(pod: &mut State, index: usize) {
    if pod.members[index].member.role == Role::Main {
        pod.another_round_until = None;
    }
}
