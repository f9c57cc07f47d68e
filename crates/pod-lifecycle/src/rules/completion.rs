//! The stop of a pod whose mains are done (J1, J7).
//!
//! Owns when it begins. Never decides what complete means: `questions::completion` does.

use crate::interface::stop_cause::StopCause;
use crate::questions::completion::{completion_waits_until, is_complete, something_is_left};
use crate::rules::stop::begin_stop;
use crate::state::State;

/// J1, J7: stops a complete pod, if anything of it still lives.
pub(crate) fn detect_completion(pod: &mut State) {
    let due = !pod.is_stopping() && is_complete(pod) && something_is_left(pod);
    if due && completion_waits_until(pod).is_none() {
        begin_stop(pod, StopCause::Completed);
    }
}
