//! `zero-grace=order` (K11): how the short time of such a stop is shared.
//!
//! Owns the shares. Never begins such a stop: `handlers::kill` does. Changes: ending.

use pod_spec::Role;

use crate::interface::id::ContainerId;
use crate::state::State;

/// Makes SIGKILL due for a container that this stop has just signalled: for mains and inits when two thirds of the
/// time are over; the sidecars share what is left.
pub(crate) fn share_zero_grace(pod: &mut State, id: &ContainerId) {
    let Some(stop) = pod.stop().filter(|stop| stop.is_zero_grace()) else { return };
    let Some(until) = stop.until() else { return };
    let left = until.since(pod.now());
    let own = match pod.role_of(id) {
        Some(Role::Sidecar) => {
            let waiting = pod.planned_where(|state, container| {
                state.role() == Role::Sidecar && container.is_unfinished() && !container.ending.is_signalled()
            });
            // Itself, and those whose turn is still to come.
            left / u32::try_from(waiting.len()).unwrap_or(u32::MAX).saturating_add(1)
        }
        _ => left * 2 / 3,
    };
    let at = pod.now() + own;
    if let Some(container) = pod.container_mut(id) {
        container.ending.kill_by(at);
    }
}
