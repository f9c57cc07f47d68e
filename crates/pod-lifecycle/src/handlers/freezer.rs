//! Pause and Resume, and the end of each.
//!
//! Owns when a container can be frozen, and what happens to a frozen one that must end (K17). Never freezes a container
//! whose program does not run. Changes: container, freezer.

use crate::container::freezer::{Change, FreezerChange};
use crate::handlers::delete::delete_container;
use crate::interface::action::{Action, Notice, Reply};
use crate::interface::id::{ContainerId, RequestId};
use crate::interface::operation::Operation;
use crate::interface::outcome::{Failure, Outcome, Refusal};
use crate::state::State;
use crate::steps::signal::thaw_if_ending;

/// A caller pauses a container.
pub(crate) fn pause_container(pod: &mut State, request: RequestId, id: ContainerId) {
    change_freezer(pod, request, id, FreezerChange::Pause);
}

/// A caller resumes a container.
pub(crate) fn resume_container(pod: &mut State, request: RequestId, id: ContainerId) {
    change_freezer(pod, request, id, FreezerChange::Resume);
}

fn change_freezer(pod: &mut State, request: RequestId, id: ContainerId, change: FreezerChange) {
    let Some(container) = pod.container(&id) else {
        return pod.reply_not_found(request, &id);
    };
    let (runs, freezer) = (container.runs(), container.freezer);
    let operation = match change {
        _ if freezer.is_changing() => Err(format!("container {id} is already being paused or resumed")),
        FreezerChange::Pause if runs && !freezer.is_paused() => Ok(Operation::Pause),
        FreezerChange::Resume if runs && freezer.is_paused() => Ok(Operation::Resume),
        FreezerChange::Pause if runs => Err(format!("cannot pause container {id}: it is already paused")),
        FreezerChange::Pause => Err(format!("cannot pause container {id}: its program does not run")),
        FreezerChange::Resume => Err(format!("cannot resume container {id}: it is not paused")),
    };
    match operation {
        Ok(operation) => {
            let op = pod.run(&id, operation);
            if let Some(container) = pod.container_mut(&id) {
                container.freezer.begin(op, Some(request), change);
            }
        }
        Err(text) => pod.reply(request, Err(Refusal::precondition(text))),
    }
}

/// A pause or resume has ended.
pub(crate) fn freezer_changed(pod: &mut State, id: ContainerId, outcome: Outcome) {
    let Some(container) = pod.container_mut(&id) else { return };
    let Some(Change { request, kind: change }) = container.freezer.change() else { return };
    if !container.runs() {
        // Its process is gone, and the caller got its answer at the exit.
        container.freezer.reset();
        for request in container.take_deletes() {
            delete_container(pod, request, id.clone());
        }
        return;
    }
    if let Outcome::Failed(Failure { message, kind }) = outcome {
        container.freezer.failed(change);
        let Some(request) = request else {
            // The next SIGKILL tries again.
            return pod.emit_change(Action::Warn(format!("container {id} could not be thawed: {message}")));
        };
        pod.reply(request, Err(Refusal { kind, message }));
        return thaw_if_ending(pod, &id);
    }
    container.freezer.changed(change);
    // A thaw for SIGKILL is no resume that a caller asked for.
    if request.is_some() || !container.ending.is_killed() {
        pod.emit_change(Action::Publish(match change {
            FreezerChange::Pause => Notice::Paused { container: id.clone() },
            FreezerChange::Resume => Notice::Resumed { container: id.clone() },
        }));
    }
    if let Some(request) = request {
        pod.reply(request, Ok(Reply::Ok));
    }
    thaw_if_ending(pod, &id);
}
