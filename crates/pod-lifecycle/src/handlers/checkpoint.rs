//! Checkpoint of a running program, and containers that are made from one (CONTRACT §8).
//!
//! Owns which checkpoints a pod allows: podshim does not let a checkpoint end a sidecar or an init, because it would start
//! it again (R1, I3). Never decides which restores it allows: `handlers::create` does. Changes: container.

use pod_spec::Role;

use crate::container::Container;
use crate::container::phase::Phase;
use crate::interface::action::Reply;
use crate::interface::event::AfterCheckpoint;
use crate::interface::exit::KILLED;
use crate::interface::id::{ContainerId, RequestId};
use crate::interface::milestone::{Milestone, SignalCause};
use crate::interface::operation::{Operation, Reach};
use crate::interface::outcome::{Failure, Outcome, Refusal};
use crate::questions::pod_restart::restarts_pod;
use crate::questions::restarts::restarts_after;
use crate::state::State;
use crate::steps::signal::kill_now;
use crate::steps::start::announce_start;
use crate::steps::unrun::end_latecomer;

/// A caller asks for a checkpoint of a running program.
pub(crate) fn checkpoint_container(
    pod: &mut State,
    request: RequestId,
    id: ContainerId,
    after: AfterCheckpoint,
) {
    let Some(container) = pod.container(&id) else {
        return pod.reply_not_found(request, &id);
    };
    if let Some(reason) = refuses_checkpoint(pod, container, after) {
        let text = format!("cannot checkpoint container {id}: {reason}");
        return pod.reply(request, Err(Refusal::precondition(text)));
    }
    let op = pod.run(&id, Operation::Checkpoint(request));
    if let Some(container) = pod.container_mut(&id) {
        container.begin_checkpoint(op, request);
    }
}

fn refuses_checkpoint(pod: &State, container: &Container, after: AfterCheckpoint) -> Option<String> {
    match (container.phase(), container.freezer) {
        _ if container.is_being_checkpointed() => return Some("it is already being checkpointed".to_owned()),
        (Phase::Running { .. }, freezer) if freezer.is_changing() => {
            return Some("it is being paused or resumed".to_owned());
        }
        (Phase::Running { .. }, _) => {}
        (phase, _) => return Some(format!("it {}", phase.in_words())),
    }
    let reason = match (after, pod.role(container)) {
        (AfterCheckpoint::End, Some(Role::Sidecar)) => {
            "its plan has it as a sidecar, which is restarted when it ends: leave it running"
        }
        (AfterCheckpoint::End, Some(Role::Init)) => {
            "its plan has it as an init, which would fail with it: leave it running"
        }
        // The runtime kills it.
        (AfterCheckpoint::End, Some(Role::Main)) if restarts_pod(pod, container, KILLED) => {
            "its fatal key has the pod restarted when it ends: leave it running"
        }
        (AfterCheckpoint::End, Some(Role::Main)) if restarts_after(pod, container, KILLED) => {
            "its restart key has it restarted when it ends: leave it running"
        }
        (AfterCheckpoint::End, Some(Role::Main) | None) | (AfterCheckpoint::LeaveRunning, _) => return None,
    };
    Some(reason.to_owned())
}

/// A checkpoint has ended. If it ended the program, that exit is shown like any other, before or after this reply.
pub(crate) fn checkpoint_ended(pod: &mut State, id: &ContainerId, outcome: Outcome) {
    let container = pod.container_mut(id);
    let Some(request) = container.and_then(Container::end_checkpoint) else { return };
    let result = match outcome {
        Outcome::Ok | Outcome::Process { .. } => Ok(Reply::Ok),
        Outcome::Failed(Failure { message, kind }) => Err(Refusal { kind, message }),
    };
    pod.reply(request, result);
}

/// Start of a container that is made from a checkpoint: only now a process is created.
pub(crate) fn restore_container(pod: &mut State, request: RequestId, id: ContainerId) {
    let op = pod.run(&id, Operation::Restore);
    if let Some(container) = pod.container_mut(&id) {
        container.restore(op, request);
    }
}

/// A restore has ended.
pub(crate) fn restore_ended(pod: &mut State, id: ContainerId, outcome: Outcome) {
    let now = pod.now();
    let Some(container) = pod.container_mut(&id) else { return };
    let Some(announce) = container.end_restore() else { return };
    match outcome {
        Outcome::Process { pid } => {
            container.restored(pid, now);
            pod.record(&id, Milestone::Running { pid });
            announce_start(pod, &id, pid, announce);
            // A stop for good came before there was a process to stop.
            if pod.stop().is_some_and(|stop| stop.is_for_good()) {
                kill_now(pod, &id, Reach::All, SignalCause::Turn);
            }
        }
        Outcome::Failed(Failure { message, kind }) => {
            // As with the runc shim.
            container.restore_failed();
            for request in announce {
                pod.reply(request, Err(Refusal { kind, message: message.clone() }));
            }
            end_latecomer(pod, &id);
        }
        Outcome::Ok => pod.impossible(format!("container {id} restored without a process")),
    }
}
