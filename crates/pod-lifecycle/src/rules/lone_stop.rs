//! A stop of one sidecar alone: how podshim tells it from the start of a stop of the pod, and answers it fast (T16).
//!
//! A kubelet that stops a pod sends the StopContainer of all containers at once, except that a container with a preStop
//! hook gets its own later (F9). So if a kubelet created all living mains, none of them has such a hook, and no other stop
//! comes within the window, then the kubelet stops this sidecar alone (a liveness probe, another image), and waits for its
//! end before it does anything else for the pod.
//!
//! Owns when that is judged, and its revocation. Never decides what counts as a stop of the pod: `questions::evidence`
//! does. Changes: ending, lone stop.

use std::time::Duration;

use crate::container::lone_stop::Window;
use crate::interface::id::ContainerId;
use crate::questions::evidence::{is_stopped_alone, lone_stop_deadline};
use crate::questions::grace::grace_without_caller;
use crate::state::State;
use crate::steps::hooks::stop_after_hooks;

/// A timer that fires this late shows that the machine is slow: other stops may be late too, so the window is doubled.
const LATE: Duration = Duration::from_millis(500);

/// T16: judges stop signals whose window is over.
pub(crate) fn lone_stop_timer(pod: &mut State, id: &ContainerId) {
    let now = pod.now();
    let Some(container) = pod.container(id) else { return };
    let Some((decide_at, window)) = container.lone_stop.open() else { return };
    if lone_stop_deadline(pod, container).is_none_or(|at| now < at) {
        return;
    }
    let alone = is_stopped_alone(pod, container);
    let late = now.since(decide_at) >= LATE && window == Window::Usual;
    let doubled = now + pod.lone_stop_window();
    let Some(container) = pod.container_mut(id) else { return };
    match (alone, late) {
        (true, true) => container.lone_stop.wait_again(doubled),
        (true, false) => {
            container.lone_stop.judge_alone();
            stop_alone(pod, id);
        }
        // The signal is kept until the sidecar's turn, or its caller's SIGKILL (T3, T7).
        (false, _) => {
            container.lone_stop.forget();
        }
    }
    pod.mark_changed();
}

/// The sidecar gets its signal, after its pre-stop hook (H2). Its gate stays as it is.
fn stop_alone(pod: &mut State, id: &ContainerId) {
    let Some(container) = pod.container_mut(id) else { return };
    // U4's stop of an unready sidecar becomes its last stop; its signal is not repeated.
    if container.ending.is_signalled() {
        return container.ending.let_last_signal_count();
    }
    container.ending.end_for_good();
    let grace = grace_without_caller(pod, id);
    stop_after_hooks(pod, id, None, grace);
}

/// A stop of the pod has begun: what podshim took for a lone stop was its beginning. As long as the exit is not
/// shown R2 applies: the sidecar is restarted while another container needs it.
pub(crate) fn revoke_lone_stops(pod: &mut State) {
    for container in pod.containers_mut() {
        if container.lone_stop.forget() && !container.is_final() && !container.never_ran() {
            // If its hook is still running, the signal has not been sent: it waits for the turn (T3).
            container.ending.revoke_lone_stop();
        }
    }
}
