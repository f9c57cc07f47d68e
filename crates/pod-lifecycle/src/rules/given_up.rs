//! Operations of podshim's own that the end of a container waits for (T10).
//!
//! A call of the OCI runtime may take two minutes, one that hangs as long as its limit. Owns which of them are given up, and
//! when. Never decides that a container is to end: that is decided above, and what follows is with the operation's own end.
//! Changes: overdue.

use std::time::Duration;

use crate::container::Container;
use crate::container::phase::Phase;
use crate::interface::action::Action;
use crate::questions::pod_restart::is_renewed;
use crate::questions::restarts::is_unwanted;
use crate::state::State;
use crate::stop::{Budget, Stop};

/// How long podshim waits for an operation that it does not need any more: one that goes well ends sooner, and leaves nothing to undo.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// T10: gives up restarts in place that are not wanted any more, and starts whose process SIGKILL has ended.
pub(crate) fn give_up_operations(pod: &mut State) {
    let now = pod.now();
    let until = if is_spent(pod) { now } else { now + LONGEST_WAIT };
    let waits: Vec<_> = pod
        .containers()
        .map(|container| (container.id().clone(), container.making().filter(|_| is_useless(pod, container))))
        .collect();
    for (id, op) in waits {
        let Some(container) = pod.container_mut(&id) else { continue };
        let Some(op) = op else {
            container.overdue.forget();
            continue;
        };
        let has_changed = container.overdue.wait(op, until);
        let given_up = container.overdue.give_up(now);
        if has_changed {
            pod.mark_changed();
        }
        if let Some(op) = given_up {
            pod.emit_change(Action::GiveUp { op, container: id });
        }
    }
}

fn is_spent(pod: &State) -> bool {
    pod.stop().map(Stop::budget) == Some(Budget::Spent)
}

/// Whether nothing but the container's end waits for what it is being made.
fn is_useless(pod: &State, container: &Container) -> bool {
    match container.phase() {
        // R14: it is made for the pod's restart instead.
        Phase::Recreating { .. } => is_unwanted(pod, container) && !is_renewed(pod, container),
        _ => container.exited_during_start() && (container.ending.is_killed() || is_spent(pod)),
    }
}
