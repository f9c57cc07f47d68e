//! The start of a container's program, and the answer to its caller.
//!
//! Owns the order of TaskStart and the answer to Start. Never decides whether a container may start: `questions::holds`
//! does. Changes: container, member, gate.

use crate::container::Container;
use crate::interface::action::{Action, Notice, Reply};
use crate::interface::id::{ContainerId, RequestId};
use crate::interface::operation::Operation;
use crate::questions::order::comes_after;
use crate::state::State;

/// Runs `runtime start`; `announce` are the Start requests that it answers.
pub(crate) fn launch(pod: &mut State, id: &ContainerId, announce: Vec<RequestId>) {
    let op = pod.run(id, Operation::Start);
    if let Some(container) = pod.container_mut(id) {
        container.start(op, announce);
    }
}

/// Runs `runtime start` of a planned container, which does not wait again in this round (S6).
pub(crate) fn release(pod: &mut State, id: &ContainerId, announce: Vec<RequestId>) {
    if let Some(index) = pod.container(id).and_then(Container::member) {
        pod.member_mut(index).gate.release();
    }
    launch(pod, id, announce);
}

/// TaskStart goes out before the answer to Start, so that no TaskExit can overtake it. T18: its caller has begun what comes after
/// some inits.
pub(crate) fn announce_start(pod: &mut State, id: &ContainerId, pid: u32, requests: Vec<RequestId>) {
    pod.emit_change(Action::Publish(Notice::Started { container: id.clone(), pid }));
    if let Some(later) = pod.container(id).and_then(Container::member) {
        for index in 0..pod.members().len() {
            if comes_after(pod, later, index) {
                pod.member_mut(index).followed();
            }
        }
    }
    for request in requests {
        pod.reply(request, Ok(Reply::Pid(pid)));
    }
}
