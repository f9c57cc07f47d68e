//! The order of a stop as data, for systemd, which may stop containers in the shim's place (N5). Owns nothing;
//! [`crate::Pod`] decides what really happens in a stop, when it happens.

use std::time::Duration;

use crate::container::Part;
use crate::event::ContainerId;
use crate::pod::Pod;
use crate::shutdown::FLOOR;

/// Where one container stands in a stop, among those that exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopOrder {
    /// The sandbox, which is to be stopped only when this container is gone; `None` for the sandbox itself, or without
    /// a sandbox.
    pub outlived_by: Option<ContainerId>,
    /// From its stop signal to SIGKILL: its grace, and the floor.
    pub grace: Duration,
}

impl Pod {
    /// A container's place in a stop by systemd: the sandbox outlives all, and R6 forbids to say more (N5). `None` in a
    /// pod without a plan, for which podshim keeps no order.
    pub fn stop_order(&self, id: &ContainerId) -> Option<StopOrder> {
        self.plan.as_ref()?;
        let own = self.containers.get(id)?;
        let sandbox = self.containers.values().find(|other| other.part == Part::Sandbox);
        Some(StopOrder {
            outlived_by: sandbox.filter(|_| own.part != Part::Sandbox).map(|sandbox| sandbox.id.clone()),
            grace: self.grace_of(id) + FLOOR,
        })
    }
}
