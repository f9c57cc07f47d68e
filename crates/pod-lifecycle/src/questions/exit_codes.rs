//! Which exit code callers see (J2 to J4, J10).
//!
//! Owns the mapping from a real code to a shown one, in one place. Changes nothing: `steps::finish` shows an exit.

use pod_spec::{Gate, RestartPolicy, Role, Signal};

use crate::container::Container;
use crate::interface::exit::{Exit, code_of_signal};
use crate::interface::stop_cause::StopCause;
use crate::state::State;

/// What callers see of an exit.
pub(crate) fn shown_exit(pod: &State, container: &Container, real: Exit) -> Exit {
    let code = container.member().map_or(real.code, |index| shown_code(pod, container, index, real.code));
    Exit { code, ..real }
}

/// Whether callers would see an exit with this code as it is.
pub(crate) fn is_shown(pod: &State, container: &Container, code: u32) -> bool {
    container.member().is_none_or(|index| shown_code(pod, container, index, code) == code)
}

fn shown_code(pod: &State, container: &Container, index: usize, real: u32) -> u32 {
    let role = pod.member(index).role();
    let by_code = pod.policy() == RestartPolicy::OnFailure;
    // J4.
    if container.ending.is_unordered() {
        return real;
    }
    match (pod.stop(), role) {
        (Some(stop), Role::Sidecar) if by_code && stop.goes_on() => not_zero(real),
        // J2.
        (Some(_), Role::Sidecar) if pod.masks_exit_codes() => 0,
        // A complete job would never end if its caller ran this init again.
        (Some(stop), Role::Init) if by_code && stop.cause() == StopCause::Completed => 0,
        // J10, I4: its work is not done.
        (_, Role::Init) if container.was_interrupted() => not_zero(real),
        // J10: an interrupted main must not be taken for a finished one.
        (Some(stop), Role::Main)
            if by_code && stop.is_ours() && stop.goes_on() && container.was_interrupted() =>
        {
            not_zero(real)
        }
        (None, Role::Sidecar) if by_code && !may_show_success(pod, container, index) => not_zero(real),
        // J3.
        _ => real,
    }
}

/// Under OnFailure: whether a sidecar that exits with 0 outside of a stop may show that. Its caller would not run
/// it again, so only a sidecar that may stay away shows 0.
fn may_show_success(pod: &State, container: &Container, index: usize) -> bool {
    let state = pod.member(index);
    let kept_running = state.member().restart.is_none_or(|restart| restart.codes().contains(0));
    let still_needed = !state.gate.is_open() && state.member().gate != Gate::Skip;
    let stopped_alone = state.asked().is_some() && container.ending.is_signalled();
    !kept_running && !still_needed && !stopped_alone && !state.is_fatal(0)
}

/// J10: shows 0 as the code of a program that SIGTERM ended.
pub(crate) fn not_zero(code: u32) -> u32 {
    if code == 0 { code_of_signal(Signal::TERM.number()) } else { code }
}
