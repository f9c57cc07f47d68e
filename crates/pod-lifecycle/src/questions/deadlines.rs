//! What the rules of the pod wait for, as times.
//!
//! Owns each of these times once: a rule asks the same function whether its time has come as the pod does when it next needs the
//! clock. Changes nothing: what is due then is with its rule. The list is `pod::RULES`; that of a container's times is
//! `rules::timers`.

use crate::interface::time::PodTime;
use crate::member::evidence::Ended;
use crate::questions::completion::{completion_waits_until, is_to_complete};
use crate::questions::losses::losses;
use crate::questions::pod_restart::resumes_at;
use crate::state::State;
use crate::stop::Stop;

/// The end of a stop in the making (T12, T16).
pub(crate) fn callers_stop(pod: &State) -> Option<PodTime> {
    pod.callers_stop.until()
}

/// When the next end counts, or the next member is given up (T15, I8).
pub(crate) fn ends(pod: &State) -> Option<PodTime> {
    let counts = pod.members().iter().filter_map(|state| state.ended().and_then(Ended::open_until));
    counts.chain(losses(pod).into_iter().map(|(_, at)| at)).min()
}

/// When a complete pod is no longer left alone (J11).
pub(crate) fn completion(pod: &State) -> Option<PodTime> {
    completion_waits_until(pod).filter(|_| is_to_complete(pod))
}

/// The next step of a stop whose time is over (T6).
pub(crate) fn budget(pod: &State) -> Option<PodTime> {
    pod.stop().and_then(Stop::next_step)
}

/// When the next operation of podshim's own is given up (T10).
pub(crate) fn operations(pod: &State) -> Option<PodTime> {
    pod.containers().filter_map(|container| container.overdue.deadline()).min()
}

/// When a pod that restarts as a whole may start again (R14).
pub(crate) fn end_of_restart(pod: &State) -> Option<PodTime> {
    let resumes_at = resumes_at(pod);
    (pod.is_restarting() && pod.now() < resumes_at).then_some(resumes_at)
}
