//! When a caller's stops of containers are a stop of the pod (T12a).
//!
//! Owns that judgement. Never decides which stops are evidence: `questions::evidence` does.

use pod_spec::Role;

use crate::interface::stop_cause::StopCause;
use crate::questions::evidence::{is_evidence, stop_was_asked};
use crate::rules::stop::begin_stop;
use crate::state::State;

/// T12a: a caller stops a main and a sidecar, or all planned containers that live, if these are several.
pub(crate) fn detect_callers_stop(pod: &mut State) {
    // R14: a caller's stop during a restart takes it over.
    if (pod.is_stopping() && !pod.is_restarting()) || !stop_was_asked(pod) {
        return;
    }
    let evident: Vec<_> = (0..pod.members().len()).filter(|index| is_evidence(pod, *index)).collect();
    let asked = |role| evident.iter().any(|index| pod.member(*index).role() == role);
    let living = || pod.planned().filter(|(_, container)| container.lives_for_callers());
    let all = living().next().is_some() && living().all(|(state, _)| state.asked().is_some());
    if (all && evident.len() > 1) || (asked(Role::Main) && asked(Role::Sidecar)) {
        begin_stop(pod, StopCause::Caller);
    }
}
