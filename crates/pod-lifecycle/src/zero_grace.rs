//! `zero-grace=order` (K11): a SIGKILL that no stop signal announced becomes a short stop of the pod, in order.
//!
//! Owns how that short time is shared. `shutdown` owns the stop itself, with its turns and its end.

use std::time::Duration;

use pod_spec::{Role, ZeroGrace};

use crate::event::ContainerId;
use crate::pod::Pod;
use crate::shutdown::StopCause;

/// crictl gives up 2 s after its StopPodSandbox, which kills one container after another and waits for each
/// (F4, F5).
pub(crate) const ZERO_GRACE: Duration = Duration::from_millis(1500);

impl Pod {
    /// Takes a caller's SIGKILL of a running member as the start of such a stop, or as a part of the one under way, in
    /// which every container gets SIGKILL at its own time. `false`: the SIGKILL has its usual meaning.
    pub(crate) fn orders_kill(&mut self) -> bool {
        match &self.stop {
            Some(stop) => stop.is_zero_grace() && stop.until().is_some(),
            None => {
                let ordered = self.plan.as_ref().is_some_and(|plan| plan.zero_grace == ZeroGrace::Order)
                    && !self.stop_was_asked();
                if ordered {
                    self.begin_stop(StopCause::ZeroGrace);
                }
                ordered
            }
        }
    }

    /// Makes SIGKILL due for a container that this stop has just signalled: for mains and inits when two thirds of the
    /// time are over; the sidecars share what is left.
    pub(crate) fn share_zero_grace(&mut self, id: &ContainerId) {
        let Some(stop) = self.stop.as_ref().filter(|stop| stop.is_zero_grace()) else { return };
        let Some(until) = stop.until() else { return };
        let left = until.since(self.now);
        let own = match self.role_of(id) {
            Some(Role::Sidecar) => {
                let waiting = self.planned_where(|state, container| {
                    state.member.role == Role::Sidecar
                        && container.is_alive()
                        && container.stop.term_at.is_none()
                });
                // Itself, and those whose turn is still to come.
                left / u32::try_from(waiting.len()).unwrap_or(u32::MAX).saturating_add(1)
            }
            _ => left * 2 / 3,
        };
        let at = self.now + own;
        if let Some(container) = self.containers.get_mut(id) {
            container.stop.kill_by(at);
        }
    }
}
