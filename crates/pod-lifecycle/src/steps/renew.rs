//! A container that begins again with its pod: held, as if its program had never run (R14).
//!
//! Owns what it forgets. Never decides which containers do that: `questions::pod_restart` does. Changes: container, member.

use crate::container::Container;
use crate::interface::exit::Exit;
use crate::interface::id::ContainerId;
use crate::state::State;

/// Its program has ended and `last` is not shown: it gets a new process at once, and is held.
pub(crate) fn renew(pod: &mut State, id: &ContainerId, last: Exit) {
    let now = pod.now();
    if let Some(container) = pod.container_mut(id) {
        container.back_off(last, now);
    }
    begin_again(pod, id);
}

/// What it did before delays no other container, and what waited for it waits again (I4).
pub(crate) fn begin_again(pod: &mut State, id: &ContainerId) {
    let Some(container) = pod.container_mut(id) else { return };
    container.begin_again();
    let Some(index) = pod.container(id).and_then(Container::member) else { return };
    pod.member_mut(index).renew();
    pod.note(format!("{} is held for the pod's restart", pod.member(index)));
}
