//! Everything that is due, container by container.

use crate::interface::id::ContainerId;
use crate::interface::milestone::SignalCause;
use crate::interface::operation::Reach;
use crate::rules::hooks::hook_timer;
use crate::rules::lone_stop::lone_stop_timer;
use crate::rules::restart::restart_timer;
use crate::rules::standby::takeover_timer;
use crate::rules::startup::startup_timers;
use crate::state::State;
use crate::steps::signal::kill_now;

/// SIGKILLs that are due (T7, T8, U4).
pub(crate) fn kill_timer(pod: &mut State, id: &ContainerId) {
    let now = pod.now;
    let Some(container) = pod.containers.get_mut(id) else { return };
    if container.ending.killed
        || !container.has_process()
        || container.ending.kill_at.is_none_or(|at| now < at)
    {
        return;
    }
    let intent = container.ending.next_exit;
    kill_now(pod, id, Reach::All, SignalCause::Grace);
    // U4: it will still be restarted.
    if let Some(container) = pod.containers.get_mut(id) {
        container.ending.next_exit = intent;
    }
}

/// Applies everything that is due, container by container.
pub(crate) fn apply_container_timers(pod: &mut State) {
    let ids: Vec<_> = pod.containers.keys().cloned().collect();
    for id in ids {
        hook_timer(pod, &id);
        takeover_timer(pod, &id);
        lone_stop_timer(pod, &id);
        kill_timer(pod, &id);
        restart_timer(pod, &id);
        startup_timers(pod, &id);
    }
}
