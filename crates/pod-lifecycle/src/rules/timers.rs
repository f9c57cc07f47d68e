//! Everything that is due, container by container.
//!
//! Owns the order of the timers, and the SIGKILL that is due (T7, T8, U4). Decides nothing else: each other timer is with
//! its rule.

use crate::interface::id::ContainerId;
use crate::interface::milestone::SignalCause;
use crate::interface::operation::Reach;
use crate::rules::hooks::hook_timer;
use crate::rules::restart::restart_timer;
use crate::rules::standby::takeover_timer;
use crate::rules::startup::startup_timers;
use crate::state::State;
use crate::steps::signal::kill_process;

/// SIGKILLs that are due (T7, T8, U4).
fn kill_timer(pod: &mut State, id: &ContainerId) {
    let now = pod.now();
    let Some(container) = pod.container(id) else { return };
    if container.ending.is_killed()
        || !container.has_process()
        || container.ending.kill_at().is_none_or(|at| now < at)
    {
        return;
    }
    // U4: it may still be restarted.
    kill_process(pod, id, Reach::All, SignalCause::Grace);
}

/// Applies everything that is due, container by container.
pub(crate) fn apply_container_timers(pod: &mut State) {
    let ids: Vec<_> = pod.containers().map(|container| container.id().clone()).collect();
    for id in ids {
        hook_timer(pod, &id);
        takeover_timer(pod, &id);
        kill_timer(pod, &id);
        restart_timer(pod, &id);
        startup_timers(pod, &id);
    }
}
