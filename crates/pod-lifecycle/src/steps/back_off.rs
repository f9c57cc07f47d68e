//! A restart that is due later (R4, R7).
//!
//! Owns what the container is meanwhile. Never decides whether it is restarted at all, which `questions::restarts` does, nor how long
//! it waits: `container::restarts` does. Changes: container, restarts.

use crate::interface::exit::Exit;
use crate::interface::id::ContainerId;
use crate::interface::milestone::Milestone;
use crate::state::State;

/// The container waits for its next process: a held one that lost its own (R7), or one whose program is restarted.
pub(crate) fn back_off(pod: &mut State, id: &ContainerId, last: Exit) {
    let now = pod.now();
    let Some(container) = pod.container(id) else { return };
    let own = pod.member_of(container).and_then(|state| state.member().restart);
    let node = pod.settings().map(|settings| settings.defaults.backoff).unwrap_or_default();
    let Some(container) = pod.container_mut(id) else { return };
    let delay = container.restarts.next_delay(&own.map_or(node, |restart| restart.backoff));
    container.back_off(last, now + delay);
    pod.record(id, Milestone::RestartDue { delay });
    pod.mark_changed();
}

/// The program is restarted: this counts for its limit (R4).
pub(crate) fn restart_later(pod: &mut State, id: &ContainerId, last: Exit) {
    if let Some(container) = pod.container_mut(id) {
        container.restarts.counted();
    }
    back_off(pod, id, last);
}
