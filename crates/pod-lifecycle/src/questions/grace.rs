//! How long stops may take (T5, T8, T17), how their time is shared (T19, T20), and whether there is time for a hook (H3).
//!
//! Owns which figure counts: the plan's, the kubelet's, the node's, or podshim's own. Changes nothing: what happens when
//! the time is over is `rules::turns` and `rules::timers`.

use std::time::Duration;

use pod_spec::{Role, Shares, shrunk};

use crate::container::Container;
use crate::interface::id::ContainerId;
use crate::interface::stop_cause::StopCause;
use crate::interface::time::PodTime;
use crate::member::MemberState;
use crate::questions::evidence::is_asked;
use crate::state::State;
use crate::stop::{Figures, MIN_KILL_DELAY, Span, Stop};

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
    let node = || pod.settings().map_or(DEFAULT_GRACE, |settings| settings.defaults.grace);
    own.or_else(|| kubelet_grace(pod)).unwrap_or_else(node)
}

fn kubelet_grace(pod: &State) -> Option<Duration> {
    pod.containers().filter_map(|container| container.spec().kubelet_grace).max()
}

/// A container's own grace, or the pod's if it has none (T8, U4).
pub(crate) fn grace_of(pod: &State, id: &ContainerId) -> Duration {
    own_grace(pod, id).unwrap_or_else(|| pod_grace(pod))
}

/// A container's own grace, in a stop that has less time than the pod's figures are meant for a part of it (T8, T20).
pub(crate) fn own_grace(pod: &State, id: &ContainerId) -> Option<Duration> {
    let grace = pod.member_of(pod.container(id)?)?.member().grace?;
    let span = pod.stop().and_then(|stop| Some((stop.span()?.length, stop.usual())));
    Some(span.map_or(grace, |(length, usual)| shrunk(grace, length, usual)))
}

/// T19, T20: the figures of a stop that begins. Its caller counts since it first asked for the end of what still lives; what it asked for
/// longer ago than its figure is of another stop.
pub(crate) fn figures(pod: &State) -> Figures {
    let living = pod.planned().filter(|(_, container)| container.is_unfinished());
    let asked = living.filter_map(|(_, container)| container.ending.asked_at());
    let callers = kubelet_grace(pod).map(|length| {
        let since = asked.filter(|at| *at + length > pod.now()).min().unwrap_or(pod.now());
        Span { since, length }
    });
    Figures { usual: pod_grace(pod), callers }
}

/// T19: when a container that something lives after gets its last signals.
pub(crate) fn last_signals(pod: &State, container: &Container) -> Option<(PodTime, PodTime)> {
    let (span, usual) = (pod.stop()?.span()?, pod.stop()?.usual());
    let state = pod.member_of(container).filter(|_| container.is_unfinished())?;
    let lives_after = |(other, it): (&MemberState, &Container)| {
        let needs = it.member().is_some_and(|index| state.needs(index));
        other.role() == Role::Sidecar && it.is_unfinished() && needs
    };
    if !pod.planned().any(lives_after) {
        return None;
    }
    let shares = Shares::of(span.length, pod.settings()?.reserve, usual, pod.steps_after_mains());
    let signals = shares.last_signals(state.steps_after())?;
    Some((span.since + signals.stop, span.since + signals.kill))
}

/// T19: the next of these signals. T10: where its process has ended and its start goes on, the time of SIGKILL counts.
pub(crate) fn next_last_signal(pod: &State, container: &Container) -> Option<PodTime> {
    let (stop, kill) = last_signals(pod, container)?;
    let has_exited = container.exited_during_start();
    let due = if has_exited || container.ending.has_last_stop_signal() { kill } else { stop };
    Some(due).filter(|_| (has_exited || container.has_process()) && !container.ending.is_killed())
}

/// T17: how long a sidecar has from its stop signal on if its caller may send no SIGKILL. In a caller's stop that
/// is a sidecar that no caller has stopped itself, in this round or before, or one whose kubelet may have been restarted before the end of
/// its grace.
pub(crate) fn grace_without_caller(pod: &State, id: &ContainerId) -> Option<Duration> {
    let container = pod.container(id)?;
    let state = pod.member_of(container)?;
    let by_caller = pod.stop().is_none_or(|stop| !stop.is_ours());
    let grace = grace_of(pod, id);
    match state.member().grace {
        _ if !by_caller => None,
        _ if !is_asked(pod, container) => Some(grace),
        None if container.spec().kubelet.is_some() => Some(grace.saturating_add(pod.replace_wait())),
        _ => None,
    }
}

/// H3: whether a hook may still begin: not once the budget or the container's part of it (T19) is spent, and not if a caller gave no time at all, since
/// then a kubelet runs no hook either.
pub(crate) fn stop_has_time_for_hooks(pod: &State, container: &Container) -> bool {
    let out_of_time = |stop: &Stop| stop.is_zero_grace() || stop.until().is_some_and(|at| pod.now() >= at);
    let is_late = last_signals(pod, container).is_some_and(|(stop, _)| pod.now() >= stop);
    !is_late && !pod.budget_is_over() && !pod.stop().is_some_and(out_of_time)
}
