//! Starts a container's program, and announces it.

use crate::container::Container;
use crate::container::phase::Phase;
use crate::interface::action::{Action, Notice, Reply};
use crate::interface::id::{ContainerId, RequestId};
use crate::interface::operation::Operation;
use crate::member::Release;
use crate::state::State;

/// Runs `runtime start`.
pub(crate) fn launch(pod: &mut State, id: &ContainerId, announce: Vec<RequestId>) {
    let op = pod.run(id, Operation::Start);
    if let Some(container) = pod.containers.get_mut(id) {
        container.phase = Phase::Starting { op, announce, early_exit: None, signals: Vec::new() };
    }
}

/// TaskStart goes out before the answer to Start, so that no TaskExit can overtake it.
pub(crate) fn announce_start(pod: &mut State, id: &ContainerId, pid: u32, requests: Vec<RequestId>) {
    pod.emit_change(Action::Publish(Notice::Started { container: id.clone(), pid }));
    for request in requests {
        pod.reply(request, Ok(Reply::Pid(pid)));
    }
}

pub(crate) fn mark_released(pod: &mut State, id: &ContainerId) {
    if let Some(index) = pod.containers.get(id).and_then(Container::member) {
        pod.members[index].release = Release::Released;
    }
}
