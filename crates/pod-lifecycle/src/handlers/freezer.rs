//! Pause and Resume.

use crate::container::freezer::{Freezer, FreezerChange};
use crate::container::phase::Phase;
use crate::handlers::delete::delete_container;
use crate::interface::action::{Action, Notice, Reply};
use crate::interface::id::{ContainerId, RequestId};
use crate::interface::operation::Operation;
use crate::interface::outcome::{Failure, Outcome, Refusal};
use crate::state::State;
use crate::steps::signal::thaw_if_ending;

pub(crate) fn pause_container(pod: &mut State, request: RequestId, id: ContainerId) {
    change_freezer(pod, request, id, FreezerChange::Pause);
}

pub(crate) fn resume_container(pod: &mut State, request: RequestId, id: ContainerId) {
    change_freezer(pod, request, id, FreezerChange::Resume);
}

pub(crate) fn change_freezer(pod: &mut State, request: RequestId, id: ContainerId, change: FreezerChange) {
    let Some(container) = pod.containers.get(&id) else {
        return pod.reply_not_found(request, &id);
    };
    let operation = match (change, &container.phase, container.freezer) {
        (FreezerChange::Pause, Phase::Running { .. }, Freezer::Thawed) => Operation::Pause,
        (FreezerChange::Resume, Phase::Running { .. }, Freezer::Paused) => Operation::Resume,
        (_, _, Freezer::Changing(..)) => {
            let text = format!("container {id} is already being paused or resumed");
            return pod.reply(request, Err(Refusal::precondition(text)));
        }
        (FreezerChange::Pause, ..) => {
            let text = format!("cannot pause container {id}: its program does not run");
            return pod.reply(request, Err(Refusal::precondition(text)));
        }
        (FreezerChange::Resume, ..) => {
            let text = format!("cannot resume container {id}: it is not paused");
            return pod.reply(request, Err(Refusal::precondition(text)));
        }
    };
    let op = pod.run(&id, operation);
    if let Some(container) = pod.containers.get_mut(&id) {
        container.freezer = Freezer::Changing(op, Some(request), change);
    }
}

pub(crate) fn freezer_changed(pod: &mut State, id: ContainerId, outcome: Outcome) {
    let Some(container) = pod.containers.get_mut(&id) else { return };
    let Freezer::Changing(_, request, change) = container.freezer else { return };
    if !matches!(container.phase, Phase::Running { .. }) {
        // Its process is gone, and the caller got its answer at the exit.
        container.freezer = Freezer::Thawed;
        for request in std::mem::take(&mut container.deletes) {
            delete_container(pod, request, id.clone());
        }
        return pod.mark_changed();
    }
    if let Outcome::Failed(Failure { message, kind }) = outcome {
        container.freezer = match change {
            FreezerChange::Pause => Freezer::Thawed,
            FreezerChange::Resume => Freezer::Paused,
        };
        let Some(request) = request else {
            // The next SIGKILL tries again.
            return pod.emit_change(Action::Warn(format!("container {id} could not be thawed: {message}")));
        };
        pod.reply(request, Err(Refusal { kind, message }));
        return thaw_if_ending(pod, &id);
    }
    let (freezer, notice) = match change {
        FreezerChange::Pause => (Freezer::Paused, Notice::Paused { container: id.clone() }),
        FreezerChange::Resume => (Freezer::Thawed, Notice::Resumed { container: id.clone() }),
    };
    container.freezer = freezer;
    // A thaw for SIGKILL is no resume that a caller asked for.
    if request.is_some() || !container.ending.killed {
        pod.emit_change(Action::Publish(notice));
    }
    if let Some(request) = request {
        pod.reply(request, Ok(Reply::Ok));
    }
    thaw_if_ending(pod, &id);
}
