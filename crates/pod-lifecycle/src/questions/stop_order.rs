//! A container's place in a stop by systemd, which may stop containers in the shim's place (N5).
//!
//! Changes nothing, and has no part in a real stop.

use crate::container::phase::Part;
use crate::interface::id::ContainerId;
use crate::interface::stop_order::StopOrder;
use crate::questions::grace::grace_of;
use crate::state::State;
use crate::stop::MIN_KILL_DELAY;

/// A container's place in a stop by systemd: the sandbox outlives all, and R6 forbids to say more (N5). `None` in a
/// pod without a plan, for which podshim keeps no order.
pub(crate) fn stop_order(pod: &State, id: &ContainerId) -> Option<StopOrder> {
    pod.settings()?;
    let own = pod.container(id)?;
    let sandbox = pod.containers().find(|other| other.part() == Part::Sandbox);
    Some(StopOrder {
        outlived_by: sandbox.filter(|_| own.part() != Part::Sandbox).map(|sandbox| sandbox.id().clone()),
        grace: grace_of(pod, id) + MIN_KILL_DELAY,
    })
}
