//! The hooks that a stop begins with, and hooks that take too long (H1, T8).

use crate::container::phase::Phase;
use crate::interface::id::ContainerId;
use crate::interface::operation::Hook;
use crate::questions::hooks::next_hook;
use crate::state::State;
use crate::steps::hooks::run_hook;
use crate::steps::signal::deliver_stop;

/// H1: all hooks at once at T0, whatever each container's own turn is.
pub(crate) fn run_on_terminate_hooks(pod: &mut State) {
    if pod.stop.is_none() {
        return;
    }
    let due = pod.planned_where(|_, container| {
        matches!(container.phase, Phase::Running { .. })
            && !container.hooks.is_running()
            && next_hook(pod, container) == Some(Hook::OnTerminate)
    });
    for id in due {
        run_hook(pod, &id, Hook::OnTerminate);
    }
}

/// T8, U4: the container's own time is over before its hooks have ended.
pub(crate) fn hook_timer(pod: &mut State, id: &ContainerId) {
    let due = pod.containers.get(id).and_then(|container| container.hooks.deadline());
    if due.is_some_and(|at| pod.now >= at) {
        deliver_stop(pod, id, None);
    }
}
