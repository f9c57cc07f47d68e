//! The stop of a pod whose mains are done (J1, J7).
//!
//! Owns when it begins. Never decides what complete means: `questions::completion` does.

use crate::interface::stop_cause::StopCause;
use crate::questions::completion::is_to_complete;
use crate::questions::deadlines;
use crate::rules::stop::begin_stop;
use crate::state::State;

/// J1, J7: stops a complete pod, if anything of it still lives.
pub(crate) fn detect_completion(pod: &mut State) {
    if is_to_complete(pod) && deadlines::completion(pod).is_none() {
        begin_stop(pod, StopCause::Completed);
    }
}
