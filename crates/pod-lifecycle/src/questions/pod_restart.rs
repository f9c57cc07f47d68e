//! Which exits restart the whole pod, and which exits of a restart no caller sees (R14).
//!
//! Owns both answers. Changes nothing: what a restart does is `rules::pod_restart`.

use pod_spec::Fatal;

use crate::container::Container;
use crate::container::ending::NextExit;
use crate::interface::time::PodTime;
use crate::questions::completion::is_complete;
use crate::questions::evidence::is_asked;
use crate::questions::restarts::restarts_after;
use crate::state::State;

/// The limit of restarts after an exit of a container with that code, if such an exit restarts the pod.
pub(crate) fn limit_of_restarts(pod: &State, container: &Container, code: u32) -> Option<u32> {
    match pod.member_of(container)?.member().fatal {
        Some(Fatal::Restart { limit }) if code != 0 => Some(limit),
        _ => None,
    }
}

/// Whether that exit of a container restarts the pod. podshim has shown it to no caller: what was shown cannot run again.
pub(crate) fn restarts_pod(pod: &State, container: &Container, code: u32) -> bool {
    limit_of_restarts(pod, container, code).is_some_and(|limit| !pod.restarts.are_spent(limit))
        // R9: the first that U4 has not forced, and that no caller asked for.
        && container.ending.next_exit() == NextExit::Unasked
        && !is_asked(pod, container)
        && container.start_error().is_none()
        && !pod.is_stopping()
        && pod.failure().is_none()
        && !pod.sandbox.is_gone()
}

/// Whether a container takes part in the restart under way: no caller sees its end, and it is held until the pod starts
/// again. What its caller stops meanwhile ends for its caller.
pub(crate) fn is_renewed(pod: &State, container: &Container) -> bool {
    pod.is_restarting()
        && container.member().is_some()
        && !is_asked(pod, container)
        && !container.ending.is_undone()
        && container.start_error().is_none()
        && !pod.sandbox.is_gone()
}

/// Whether no caller sees an exit of a container with that code: podshim runs it again, alone or with its pod.
pub(crate) fn is_withheld(pod: &State, container: &Container, code: u32) -> bool {
    restarts_after(pod, container, code) || restarts_pod(pod, container, code) || is_renewed(pod, container)
}

/// When the pod may start again. Not while a caller that has stopped one container may be stopping the pod, one container
/// after another (F4): it would start what is killed next.
pub(crate) fn resumes_at(pod: &State) -> PodTime {
    pod.callers_stop.until().unwrap_or_default().max(pod.restarts.resumes_at())
}

/// Why an operator cannot restart the pod now.
pub(crate) fn refuses_restart(pod: &State) -> Option<&'static str> {
    let lives = || pod.planned().any(|(_, container)| container.lives_for_callers() || container.is_hidden());
    match () {
        () if !pod.has_plan() => Some("it has no podshim.io/plan"),
        () if pod.is_restarting() => Some("it is being restarted"),
        () if pod.is_stopping() => Some("it is stopping"),
        () if pod.failure().is_some() => Some("it has failed"),
        () if is_complete(pod) => Some("it is complete"),
        () if !lives() => Some("none of its planned containers runs"),
        () => None,
    }
}
