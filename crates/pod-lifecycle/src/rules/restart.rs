//! Restarts that are due, and those that will not come (R5, R6).

use pod_spec::Signal;

use crate::container::Container;
use crate::container::phase::{Phase, Program};
use crate::interface::exit::{Exit, code_of_signal};
use crate::interface::id::ContainerId;
use crate::interface::operation::Operation;
use crate::questions::restarts::{is_unwanted, keeps_running};
use crate::state::State;
use crate::steps::finish::finish;
use crate::steps::unrun::end_without_running;

/// R5, K16: a container that waits for a restart that will not come is final at once, with its last code.
pub(crate) fn end_restarts(pod: &mut State) {
    let held = pod.planned_where(|_, container| {
        matches!(container.phase, Phase::Held(_))
            && container.program == Program::HasRun
            && is_unwanted(pod, container)
    });
    for id in held {
        end_without_running(pod, &id, code_of_signal(Signal::TERM.number()), None);
    }
    let over: Vec<(ContainerId, Exit)> = pod
        .planned()
        .filter_map(|(_, container)| match container.phase {
            Phase::BackingOff { last, .. }
                if container.program == Program::HasRun && !keeps_running(pod, container) =>
            {
                Some((container.id.clone(), last))
            }
            // R7's hold ends like any other.
            Phase::BackingOff { .. } if container.program == Program::NeverRan && pod.sandbox_gone => Some((
                container.id.clone(),
                Exit { code: code_of_signal(Signal::TERM.number()), ..Exit::default() },
            )),
            _ => None,
        })
        .collect();
    for (id, last) in over {
        finish(pod, &id, last);
    }
}

/// R6: recreates a container whose backoff is over.
pub(crate) fn restart_timer(pod: &mut State, id: &ContainerId) {
    let now = pod.now;
    let Some(Container { phase: Phase::BackingOff { last, until }, .. }) = pod.containers.get(id) else {
        return;
    };
    let (last, until) = (*last, *until);
    if now < until || pod.freezer_is_busy(id) {
        return;
    }
    let op = pod.run(id, Operation::Recreate);
    if let Some(container) = pod.containers.get_mut(id) {
        container.phase = Phase::Recreating { op, last };
    }
}
