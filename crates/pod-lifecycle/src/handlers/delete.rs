//! Delete: the removal of a container, and its end.
//!
//! Owns in which phases a container can be deleted (trap 12), and that a Delete ends what a create waits for (F11). Never ends
//! a program that runs: its caller kills it first. Changes: container.

use crate::container::EndedRemoval;
use crate::container::phase::{BeforeRemoval, Phase, Program};
use crate::handlers::exit::init_exited;
use crate::interface::action::{Action, Deleted, Notice, Reply};
use crate::interface::exit::{Exit, START_FAILED};
use crate::interface::id::{ContainerId, RequestId};
use crate::interface::operation::Operation;
use crate::interface::outcome::{Failure, Outcome, Refusal};
use crate::member::evidence::EndedBy;
use crate::state::State;
use crate::steps::finish::note_end;
use crate::steps::forget::forget;
use crate::steps::unrun::end_latecomer;

/// A caller deletes a container.
pub(crate) fn delete_container(pod: &mut State, request: RequestId, id: ContainerId) {
    let Some(container) = pod.container_mut(&id) else {
        return pod.reply_not_found(request, &id);
    };
    if container.delete_later(request) {
        // F11: containerd 1.7 and 2.x serve only after this Delete, and open the streams of no container before they serve.
        if matches!(container.phase(), Phase::Creating { .. }) {
            pod.emit_change(Action::GiveUpCreate { container: id });
        }
        return;
    }
    let (exit, before) = match *container.phase() {
        Phase::Stopped { exit } => (exit, BeforeRemoval::Stopped),
        // Never started: the runtime's init goes with it.
        Phase::Created => (Exit::default(), BeforeRemoval::Created { early_exit: None }),
        Phase::CompletedAgain { exit } => (exit, BeforeRemoval::CompletedAgain),
        Phase::Prepared => (Exit::default(), BeforeRemoval::Prepared),
        _ => {
            let text = format!("cannot delete container {id}: it is running");
            return pod.reply(request, Err(Refusal::precondition(text)));
        }
    };
    let op = pod.run(&id, Operation::Remove);
    if let Some(container) = pod.container_mut(&id) {
        container.remove(op, request, exit, before);
    }
}

/// A removal has ended.
pub(crate) fn removal_ended(pod: &mut State, id: ContainerId, outcome: Outcome, ended: Exit) {
    let Some(container) = pod.container_mut(&id) else { return };
    let Some(EndedRemoval { requests, exit, before }) = container.end_removal() else { return };
    if let Outcome::Failed(Failure { message, kind }) = outcome {
        container.removal_failed(exit, before);
        for request in requests {
            pod.reply(request, Err(Refusal { kind, message: message.clone() }));
        }
        return match before {
            BeforeRemoval::Created { early_exit: Some(exit) } => init_exited(pod, id, exit),
            _ => end_latecomer(pod, &id),
        };
    }
    let Some(container) = forget(pod, &id) else { return };
    // A restarted containerd deletes CREATED tasks (F11); under Never its caller does not create the container
    // again.
    if let (Some(index), BeforeRemoval::Created { .. }, None) =
        (container.member(), before, container.start_error())
    {
        let lost = Exit { code: START_FAILED, ..ended };
        note_end(pod, index, lost, lost, EndedBy::Caller, Program::NeverRan);
    }
    let deleted = Deleted { pid: container.pid(), exit };
    pod.emit_change(Action::Publish(Notice::Deleted { container: id, deleted }));
    for request in requests {
        pod.reply(request, Ok(Reply::Deleted(deleted)));
    }
}
