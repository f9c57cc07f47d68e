//! Operations of podshim's own that the end of a container waits for (T10).
//!
//! A call of the OCI runtime may take two minutes, one that hangs as long as its limit. Owns which of them are given up, and
//! when. Never decides that a container is to end: that is decided above, and what follows is with the operation's own end.
//! Changes: overdue.

use std::time::Duration;

use crate::container::Container;
use crate::container::phase::Phase;
use crate::interface::action::Action;
use crate::interface::id::OpId;
use crate::questions::pod_restart::is_renewed;
use crate::questions::restarts::is_unwanted;
use crate::state::State;
use crate::stop::{Budget, Stop};

/// How long podshim waits for an operation that it does not need any more: one that goes well ends sooner, and leaves nothing to undo.
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// T10: gives up restarts in place that are not wanted any more, starts whose process SIGKILL has ended, and the hooks and
/// execs of a container whose processes are gone.
pub(crate) fn give_up_operations(pod: &mut State) {
    let now = pod.now();
    let waits: Vec<_> =
        pod.containers().map(|container| (container.id().clone(), useless(pod, container))).collect();
    for (id, ops) in waits {
        let has_process_to_end = pod.container(&id).is_some_and(Container::is_draining);
        // The processes of hooks and execs end with their container, also when no time is left: that takes a moment.
        let until = if is_spent(pod) && !has_process_to_end { now } else { now + LONGEST_WAIT };
        let Some(container) = pod.container_mut(&id) else { continue };
        let has_changed = container.overdue.wait(&ops, until);
        let given_up = container.overdue.give_up(now);
        if has_changed {
            pod.mark_changed();
        }
        for op in given_up {
            pod.emit_change(Action::GiveUp { op, container: id.clone() });
        }
    }
}

fn is_spent(pod: &State) -> bool {
    pod.stop().map(Stop::budget) == Some(Budget::Spent)
}

/// The operations under way for which nothing but the container's end waits.
fn useless(pod: &State, container: &Container) -> Vec<OpId> {
    match *container.phase() {
        // R14: it is made for the pod's restart instead.
        Phase::Recreating { op, .. } if is_unwanted(pod, container) && !is_renewed(pod, container) => {
            vec![op]
        }
        Phase::Starting { op, early_exit: Some(_), .. } if container.ending.is_killed() || is_spent(pod) => {
            vec![op]
        }
        // What they run in is gone, and so are their processes.
        Phase::Draining { op: None, .. } => {
            let execs = container.execs().filter_map(|(_, exec)| exec.starting());
            container.hooks.running().into_iter().chain(execs).collect()
        }
        _ => Vec::new(),
    }
}
