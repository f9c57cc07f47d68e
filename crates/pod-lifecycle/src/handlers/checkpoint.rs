//! Checkpoint of a running program, and containers that are made from one (CONTRACT §8).

use pod_spec::Role;

use crate::container::Container;
use crate::container::checkpoint::Checkpoint;
use crate::container::freezer::Freezer;
use crate::container::phase::{Phase, Program};
use crate::interface::action::Reply;
use crate::interface::event::AfterCheckpoint;
use crate::interface::exit::KILLED;
use crate::interface::id::{ContainerId, RequestId};
use crate::interface::milestone::{Milestone, SignalCause};
use crate::interface::operation::{Operation, Reach};
use crate::interface::outcome::{Failure, Outcome, Refusal};
use crate::questions::restarts::restarts_after;
use crate::state::State;
use crate::steps::signal::kill_now;
use crate::steps::start::announce_start;
use crate::steps::unrun::end_latecomer;

pub(crate) fn checkpoint_container(
    pod: &mut State,
    request: RequestId,
    id: ContainerId,
    after: AfterCheckpoint,
) {
    let Some(container) = pod.containers.get(&id) else {
        return pod.reply_not_found(request, &id);
    };
    if let Some(reason) = refuses_checkpoint(pod, container, after) {
        let text = format!("cannot checkpoint container {id}: {reason}");
        return pod.reply(request, Err(Refusal::precondition(text)));
    }
    let op = pod.run(&id, Operation::Checkpoint(request));
    if let Some(container) = pod.containers.get_mut(&id) {
        container.checkpoint = Some(Checkpoint { op, request });
    }
}

pub(crate) fn refuses_checkpoint(
    pod: &State,
    container: &Container,
    after: AfterCheckpoint,
) -> Option<&'static str> {
    match (&container.phase, container.freezer) {
        _ if container.checkpoint.is_some() => return Some("it is already being checkpointed"),
        (Phase::Running { .. }, Freezer::Changing(..)) => {
            return Some("it is being paused or resumed");
        }
        (Phase::Running { .. }, Freezer::Thawed | Freezer::Paused) => {}
        (Phase::Held(_), _) => return Some("it is held, its program has not been started"),
        (Phase::BackingOff { .. } | Phase::Recreating { .. }, _) => return Some("it is restarting"),
        (Phase::Hidden { .. } | Phase::CompletedAgain { .. }, _) => return Some("it is completed"),
        (Phase::Stopped { .. } | Phase::Removing { .. }, _) => return Some("it has stopped"),
        (Phase::EndingUnrun { .. } | Phase::Draining { .. }, _) => return Some("it is ending"),
        _ => return Some("its program does not run yet"),
    }
    match (after, pod.role(container)) {
        (AfterCheckpoint::End, Some(Role::Sidecar)) => {
            Some("its plan has it as a sidecar, which is restarted when it ends: leave it running")
        }
        (AfterCheckpoint::End, Some(Role::Init)) => {
            Some("its plan has it as an init, which would fail with it: leave it running")
        }
        // The runtime kills it.
        (AfterCheckpoint::End, Some(Role::Main)) if restarts_after(pod, container, KILLED) => {
            Some("its restart key has it restarted when it ends: leave it running")
        }
        (AfterCheckpoint::End, Some(Role::Main) | None) | (AfterCheckpoint::LeaveRunning, _) => None,
    }
}

/// A checkpoint has ended. If it ended the program, that exit is shown like any other, before or after this reply.
pub(crate) fn checkpoint_ended(pod: &mut State, id: &ContainerId, outcome: Outcome) {
    let container = pod.containers.get_mut(id);
    let Some(Checkpoint { request, .. }) = container.and_then(|container| container.checkpoint.take()) else {
        return;
    };
    let result = match outcome {
        Outcome::Ok | Outcome::Process { .. } => Ok(Reply::Ok),
        Outcome::Failed(Failure { message, kind }) => Err(Refusal { kind, message }),
    };
    pod.reply(request, result);
}

/// Start of a container that is made from a checkpoint: only now a process is created.
pub(crate) fn restore_container(pod: &mut State, request: RequestId, id: ContainerId) {
    let op = pod.run(&id, Operation::Restore);
    if let Some(container) = pod.containers.get_mut(&id) {
        container.phase = Phase::Restoring { op, announce: vec![request] };
    }
}

pub(crate) fn restore_ended(pod: &mut State, id: ContainerId, outcome: Outcome) {
    let now = pod.now;
    let Some(container) = pod.containers.get_mut(&id) else { return };
    let Phase::Restoring { announce, .. } = &mut container.phase else { return };
    let announce = std::mem::take(announce);
    match outcome {
        Outcome::Process { pid } => {
            container.phase = Phase::Running { since: now };
            container.program = Program::HasRun;
            container.pid = pid;
            pod.record(&id, Milestone::Running { pid });
            announce_start(pod, &id, pid, announce);
            // A stop for good came before there was a process to stop.
            if pod.stop.as_ref().is_some_and(|stop| stop.is_for_good()) {
                kill_now(pod, &id, Reach::All, SignalCause::Turn);
            }
        }
        Outcome::Failed(Failure { message, kind }) => {
            // As with the runc shim the caller may try again.
            container.phase = Phase::Prepared;
            for request in announce {
                pod.reply(request, Err(Refusal { kind, message: message.clone() }));
            }
            end_latecomer(pod, &id);
        }
        Outcome::Ok => pod.impossible(format!("container {id} restored without a process")),
    }
}
