//! Delete.

use crate::container::freezer::Freezer;
use crate::container::phase::{BeforeRemoval, Phase, Program};
use crate::handlers::exit::init_exited;
use crate::interface::action::{Action, Deleted, Notice, Reply};
use crate::interface::exit::{Exit, START_FAILED};
use crate::interface::id::{ContainerId, RequestId};
use crate::interface::operation::Operation;
use crate::interface::outcome::{Failure, Outcome, Refusal};
use crate::interface::time::WallTime;
use crate::member::evidence::EndedBy;
use crate::rules::sandbox::sandbox_ended;
use crate::state::State;
use crate::steps::finish::note_end;
use crate::steps::forget::forget;
use crate::steps::unrun::end_latecomer;

pub(crate) fn delete_container(pod: &mut State, request: RequestId, id: ContainerId) {
    let Some(container) = pod.containers.get_mut(&id) else {
        return pod.reply_not_found(request, &id);
    };
    let busy = matches!(container.freezer, Freezer::Changing(..));
    let (exit, before) = match &mut container.phase {
        Phase::Stopped { .. } if busy => return container.deletes.push(request),
        Phase::Stopped { exit } => (*exit, BeforeRemoval::Stopped),
        // Never started: the runtime's init goes with it.
        Phase::Created => {
            (Exit { code: 0, at: WallTime::default() }, BeforeRemoval::Created { early_exit: None })
        }
        Phase::CompletedAgain { exit } => (*exit, BeforeRemoval::CompletedAgain),
        Phase::Prepared => (Exit::default(), BeforeRemoval::Prepared),
        // A retry after a lost connection gets the same answer (trap 12).
        Phase::Removing { requests, .. } => return requests.push(request),
        Phase::Creating { deletes, .. } => return deletes.push(request),
        _ => {
            let text = format!("cannot delete container {id}: it is running");
            return pod.reply(request, Err(Refusal::precondition(text)));
        }
    };
    let op = pod.run(&id, Operation::Remove);
    if let Some(container) = pod.containers.get_mut(&id) {
        container.phase = Phase::Removing { op, requests: vec![request], exit, before };
    }
}

pub(crate) fn removal_ended(pod: &mut State, id: ContainerId, outcome: Outcome, ended: Exit) {
    let Some(container) = pod.containers.get_mut(&id) else { return };
    let Phase::Removing { requests, exit, before, .. } = &mut container.phase else { return };
    let (requests, exit, before) = (std::mem::take(requests), *exit, *before);
    if let Outcome::Failed(Failure { message, kind }) = outcome {
        // It stays deletable: the caller may try again (trap 12).
        container.phase = match before {
            BeforeRemoval::Stopped => Phase::Stopped { exit },
            BeforeRemoval::CompletedAgain => Phase::CompletedAgain { exit },
            BeforeRemoval::Prepared => Phase::Prepared,
            BeforeRemoval::Created { .. } => Phase::Created,
        };
        for request in requests {
            pod.reply(request, Err(Refusal { kind, message: message.clone() }));
        }
        return match before {
            BeforeRemoval::Created { early_exit: Some(exit) } => init_exited(pod, id, exit),
            _ => end_latecomer(pod, &id),
        };
    }
    let sandbox_was_gone = pod.sandbox_gone;
    let Some(container) = forget(pod, &id) else { return };
    // A restarted containerd deletes CREATED tasks (F11); under Never its caller does not create the container
    // again.
    if let (Some(index), BeforeRemoval::Created { .. }, None) =
        (container.member(), before, container.start_error)
    {
        let lost = Exit { code: START_FAILED, ..ended };
        note_end(pod, index, lost, lost, EndedBy::CallerAlone, Program::NeverRan);
    }
    let deleted = Deleted { pid: container.pid, exit };
    pod.emit_change(Action::Publish(Notice::Deleted { container: id, deleted }));
    for request in requests {
        pod.reply(request, Ok(Reply::Deleted(deleted)));
    }
    // K16, for a sandbox that was deleted before it was started.
    if pod.sandbox_gone && !sandbox_was_gone {
        sandbox_ended(pod);
    }
}
