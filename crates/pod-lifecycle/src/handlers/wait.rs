//! Wait, and callers that are gone.
//!
//! Owns which exits are answered at once; the others are answered where they are shown. Never changes more of a
//! container than who waits for it. Changes: container.

use crate::container::phase::{BeforeRemoval, Phase};
use crate::interface::action::Reply;
use crate::interface::id::{RequestId, Target};
use crate::state::State;

/// A caller waits for the exit of a container or exec.
pub(crate) fn add_waiter(pod: &mut State, request: RequestId, target: Target) {
    let Some(container) = pod.container_mut(&target.container) else {
        return pod.reply_not_found(request, &target.container);
    };
    let exit = match (&target.exec, container.phase()) {
        (None, Phase::Stopped { exit } | Phase::Removing { exit, before: BeforeRemoval::Stopped, .. }) => {
            *exit
        }
        (None, _) => return container.wait(request),
        (Some(id), _) => match container.exec_mut(id).map(|exec| exec.wait(request)) {
            None => return pod.reply_exec_not_found(request, &target.container, id),
            Some(None) => return,
            Some(Some(exit)) => exit,
        },
    };
    pod.reply(request, Ok(Reply::Exit(exit)));
}

/// A containerd that was killed sends its Waits again when it is back. Otherwise each restart would leave one Wait
/// per container here.
pub(crate) fn forget_waiter(pod: &mut State, request: RequestId) {
    for container in pod.containers_mut() {
        container.forget_waiter(request);
    }
}
