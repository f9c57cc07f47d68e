//! A stop of one sidecar alone: how podshim tells it from the start of a stop of the pod, and answers it fast (T16).
//!
//! A kubelet that stops a pod sends the StopContainer of all containers at once, except that a container with a preStop
//! hook gets its own later (F9). So if a kubelet created all living mains, none of them has such a hook, and no other stop
//! comes within the window, then the kubelet stops this sidecar alone (a liveness probe, another image), and waits for its
//! end before it does anything else for the pod.
//!
//! Owns when that is judged, and its revocation. Never decides what counts as a stop of the pod: `questions::evidence`
//! does. Changes: ending, hooks, callers stop.

use std::time::Duration;

use crate::callers_stop::Window;
use crate::container::Container;
use crate::container::phase::Phase;
use crate::interface::id::ContainerId;
use crate::questions::deadlines;
use crate::questions::evidence::stopped_alone;
use crate::questions::grace::grace_without_caller;
use crate::state::State;
use crate::steps::hooks::stop_after_hooks;

/// A timer that fires this late shows that the machine is slow: other stops may be late too, so the window is doubled.
const LATE: Duration = Duration::from_millis(500);

/// T16: decides on the stop in the making when its window is over. If it is no stop of one sidecar alone, kept signals wait for the
/// sidecars' turns, or for their caller's SIGKILL (T3, T7).
pub(crate) fn judge_callers_stop(pod: &mut State) {
    let now = pod.now();
    let is_over = deadlines::callers_stop(pod).is_some_and(|at| now >= at);
    let Some((until, window)) = pod.callers_stop.open().filter(|_| is_over) else { return };
    let alone = stopped_alone(pod).map(|sidecar| sidecar.id().clone());
    let is_late = now.since(until) >= LATE && window == Window::Usual;
    pod.mark_changed();
    match alone {
        Some(_) if is_late => pod.callers_stop.wait_again(now + pod.lone_stop_window()),
        Some(id) => {
            pod.callers_stop.close();
            stop_alone(pod, &id);
        }
        None => pod.callers_stop.close(),
    }
}

/// The sidecar gets its signal, after its pre-stop hook (H2). Its gate stays as it is. One that waits for its restart has ended (R5).
fn stop_alone(pod: &mut State, id: &ContainerId) {
    let Some(container) = pod.container_mut(id) else { return };
    container.ending.end_alone();
    // U4's stop of an unready sidecar becomes its last stop; its signal is not repeated.
    if container.ending.is_signalled() {
        return container.ending.let_last_signal_count();
    }
    if matches!(container.phase(), Phase::Starting { .. } | Phase::Running { .. }) {
        let grace = grace_without_caller(pod, id);
        stop_after_hooks(pod, id, None, grace);
    }
}

/// A stop of the pod has begun: what podshim took for a lone stop was its beginning. As long as the exit is not
/// shown R2 applies: the sidecar is restarted while another container needs it.
pub(crate) fn revoke_lone_stops(pod: &mut State) {
    let has_run = |container: &&mut Container| !container.is_final() && !container.never_ran();
    for container in pod.containers_mut().filter(has_run) {
        let was_alone = container.ending.is_alone();
        container.ending.revoke_lone_stop();
        // If its hook is still running, the signal has not been sent: it waits for the turn (T3), not for T8's time.
        if was_alone && !container.ending.is_signalled() && !container.ending.ends_for_restart() {
            container.hooks.stop_waiting();
        }
    }
}
