//! Restarts that are due, and those that will not come (R5, R6, K16).
//!
//! Owns the moment: a restart whose delay is over begins, one that is no longer wanted ends. Never decides how long the delay is,
//! which `container::restarts` does, nor whether a program runs again: `questions::restarts` does. The start after it is
//! `rules::startup`. Changes: container.

use pod_spec::Signal;

use crate::container::Container;
use crate::container::phase::Phase;
use crate::interface::exit::{Exit, code_of_signal};
use crate::interface::id::ContainerId;
use crate::interface::operation::Operation;
use crate::interface::time::PodTime;
use crate::questions::pod_restart::is_renewed;
use crate::questions::restarts::{is_restart_wanted, is_unwanted};
use crate::state::State;
use crate::steps::finish::finish;
use crate::steps::unrun::end_without_running;

/// R5, K16: a container that waits for a restart that will not come is final at once, with its last code.
pub(crate) fn end_restarts(pod: &mut State) {
    let held = pod.planned_where(|_, container| {
        container.is_held()
            && !container.never_ran()
            && is_unwanted(pod, container)
            // R14: it is held for the pod's restart instead.
            && !is_renewed(pod, container)
    });
    for id in held {
        end_without_running(pod, &id, code_of_signal(Signal::TERM.number()), None);
    }
    let over: Vec<(ContainerId, Exit)> = pod
        .planned()
        .filter_map(|(_, container)| match *container.phase() {
            Phase::BackingOff { last, .. }
                if !container.never_ran()
                    && !is_restart_wanted(pod, container)
                    && !is_renewed(pod, container) =>
            {
                Some((container.id().clone(), last))
            }
            _ => None,
        })
        .collect();
    for (id, last) in over {
        finish(pod, &id, last);
    }
}

/// R6: when a container's backoff is over.
pub(crate) fn restart_due(_: &State, container: &Container) -> Option<PodTime> {
    match container.phase() {
        // A pause that was under way at the exit would freeze the next process: the cgroup has the same name.
        Phase::BackingOff { until, .. } if !container.freezer.is_changing() => Some(*until),
        _ => None,
    }
}

/// R6: it is over.
pub(crate) fn recreate(pod: &mut State, id: &ContainerId) {
    let Some(Phase::BackingOff { last, .. }) = pod.container(id).map(Container::phase) else { return };
    let last = *last;
    let op = pod.run(id, Operation::Recreate);
    if let Some(container) = pod.container_mut(id) {
        container.recreate(op, last);
    }
}
