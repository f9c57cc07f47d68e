//! The hooks that a stop of the pod begins with, and hooks that take too long (H1, T8, U4).
//!
//! Owns when they begin. Never begins the hooks of one container's own stop: `steps::hooks` does.

use crate::container::Container;
use crate::interface::id::ContainerId;
use crate::interface::operation::Hook;
use crate::interface::time::PodTime;
use crate::questions::hooks::next_hook;
use crate::state::State;
use crate::steps::hooks::{run_hook, signal_now_or_in_turn};

/// H1: all hooks at once at T0, whatever each container's own turn is.
pub(crate) fn run_on_terminate_hooks(pod: &mut State) {
    if !pod.is_stopping() {
        return;
    }
    let due = pod.planned_where(|_, container| {
        container.runs()
            && !container.hooks.is_running()
            && next_hook(pod, container) == Some(Hook::OnTerminate)
    });
    for id in due {
        run_hook(pod, &id, Hook::OnTerminate);
    }
}

/// T8, U4: when the container's own time is over, while its hooks run.
pub(crate) fn hooks_due(_: &State, container: &Container) -> Option<PodTime> {
    container.hooks.deadline()
}

/// Its hooks have not ended by then.
pub(crate) fn hooks_timed_out(pod: &mut State, id: &ContainerId) {
    signal_now_or_in_turn(pod, id);
}
