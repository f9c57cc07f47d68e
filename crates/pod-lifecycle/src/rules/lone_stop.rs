//! A stop of one sidecar alone (T16).

use std::time::Duration;

use crate::container::ending::NextExit;
use crate::container::lone_stop::{LoneStop, Window};
use crate::container::phase::Program;
use crate::interface::id::ContainerId;
use crate::questions::evidence::{is_stopped_alone, lone_stop_deadline};
use crate::questions::grace::grace_without_caller;
use crate::state::State;
use crate::steps::hooks::stop_after_hooks;

/// A timer that fires this late shows that the machine is slow: other stops may be late too, so the window is doubled.
pub(crate) const LATE: Duration = Duration::from_millis(500);

/// T16: judges stop signals whose window is over.
pub(crate) fn lone_stop_timer(pod: &mut State, id: &ContainerId) {
    let now = pod.now;
    let Some(container) = pod.containers.get(id) else { return };
    let Some(LoneStop::Undecided { decide_at, window }) = container.lone_stop else { return };
    if lone_stop_deadline(pod, container).is_none_or(|at| now < at) {
        return;
    }
    let alone = is_stopped_alone(pod, container);
    let late = now.since(decide_at) >= LATE && window == Window::Usual;
    let doubled = now + pod.lone_stop_window();
    let Some(container) = pod.containers.get_mut(id) else { return };
    container.lone_stop = match (alone, late) {
        (true, true) => Some(LoneStop::Undecided { decide_at: doubled, window: Window::Doubled }),
        (true, false) => Some(LoneStop::Alone),
        // The signal is kept until the sidecar's turn, or its caller's SIGKILL (T3, T7).
        (false, _) => None,
    };
    if container.lone_stop == Some(LoneStop::Alone) {
        stop_alone(pod, id);
    }
    pod.mark_changed();
}

/// The sidecar gets its signal, after its pre-stop hook (H2). Its gate stays as it is.
pub(crate) fn stop_alone(pod: &mut State, id: &ContainerId) {
    let Some(container) = pod.containers.get_mut(id) else { return };
    container.ending.next_exit = NextExit::Final;
    // U4's stop of an unready sidecar becomes its last stop; its signal is not repeated.
    if container.ending.term_at.is_some() {
        container.ending.held_signal = None;
        return;
    }
    let grace = grace_without_caller(pod, id);
    stop_after_hooks(pod, id, None, grace);
}

/// A stop of the pod has begun: what podshim took for a lone stop was its beginning. As long as the exit is not
/// shown R2 applies: the sidecar is restarted while another container needs it.
pub(crate) fn revoke_lone_stops(pod: &mut State) {
    for container in pod.containers.values_mut() {
        let judged = container.lone_stop.take() == Some(LoneStop::Alone);
        if !judged || container.is_final() || container.program == Program::NeverRan {
            continue;
        }
        // If its hook is still running, the signal has not been sent: it waits for the turn (T3).
        container.ending.next_exit =
            if container.ending.term_at.is_some() { NextExit::Restart } else { NextExit::Unasked };
    }
}
