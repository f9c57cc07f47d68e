//! How long stops may take (T5, T8, T17), and whether there is time for a hook (H3).
//!
//! Owns which figure counts: the plan's, the kubelet's, the node's, or podshim's own. Changes nothing: what happens when
//! the time is over is `rules::turns` and `rules::timers`.

use std::time::Duration;

use crate::container::Container;
use crate::interface::id::ContainerId;
use crate::interface::stop_cause::StopCause;
use crate::interface::time::PodTime;
use crate::state::State;
use crate::stop::{MIN_KILL_DELAY, Stop};

/// The budget of a stop that podshim begins where neither plan, kubelet nor node sets one (T5).
const DEFAULT_GRACE: Duration = Duration::from_secs(30);

/// crictl gives up 2 s after its StopPodSandbox, which kills one container after another and waits for each
/// (F4, F5).
const ZERO_GRACE: Duration = Duration::from_millis(1500);

/// When a stop of that cause must be over, if podshim sets its limit (T5).
pub(crate) fn limit_of(pod: &State, cause: StopCause) -> Option<PodTime> {
    match cause {
        // K13: a caller that stops the sandbox does not wait longer than the floor.
        StopCause::Sandbox(_) => {
            let grace = pod.settings().and_then(|settings| settings.grace).unwrap_or(MIN_KILL_DELAY);
            Some(pod.now() + grace.min(MIN_KILL_DELAY))
        }
        StopCause::ZeroGrace => {
            let grace = pod.settings().and_then(|settings| settings.grace).unwrap_or(ZERO_GRACE);
            Some(pod.now() + grace.min(ZERO_GRACE))
        }
        StopCause::Caller => pod.settings()?.grace.map(|grace| pod.now() + grace),
        StopCause::Requested
        | StopCause::Completed
        | StopCause::InitFailed
        | StopCause::SidecarFailed
        | StopCause::Fatal
        | StopCause::Restart => Some(pod.now() + pod_grace(pod)),
    }
}

pub(crate) fn pod_grace(pod: &State) -> Duration {
    let own = pod.settings().and_then(|settings| settings.grace);
    let kubelet = || pod.containers().filter_map(|container| container.spec().kubelet_grace).max();
    let node = || pod.settings().map_or(DEFAULT_GRACE, |settings| settings.defaults.grace);
    own.or_else(kubelet).unwrap_or_else(node)
}

/// A container's own grace, or the pod's if it has none (T8, U4).
pub(crate) fn grace_of(pod: &State, id: &ContainerId) -> Duration {
    let index = pod.container(id).and_then(Container::member);
    index.and_then(|index| pod.member(index).member().grace).unwrap_or_else(|| pod_grace(pod))
}

/// T17: how long a sidecar has from its stop signal on if its caller may send no SIGKILL. In a caller's stop that
/// is a sidecar that no caller has stopped itself, or one whose kubelet may have been restarted before the end of
/// its grace.
pub(crate) fn grace_without_caller(pod: &State, id: &ContainerId) -> Option<Duration> {
    let container = pod.container(id)?;
    let state = pod.member_of(container)?;
    let by_caller = pod.stop().is_none_or(|stop| !stop.is_ours());
    let grace = grace_of(pod, id);
    match (state.asked(), state.member().grace) {
        _ if !by_caller => None,
        (None, _) => Some(grace),
        (Some(_), None) if container.spec().kubelet.is_some() => {
            Some(grace.saturating_add(pod.replace_wait()))
        }
        (Some(_), _) => None,
    }
}

/// H3: whether a hook may still begin: not once the budget is spent, and not if a caller gave no time at all, since
/// then a kubelet runs no hook either.
pub(crate) fn stop_has_time_for_hooks(pod: &State) -> bool {
    let out_of_time = |stop: &Stop| stop.is_zero_grace() || stop.until().is_some_and(|at| pod.now() >= at);
    !pod.budget_is_over() && !pod.stop().is_some_and(out_of_time)
}
