//! The order of a stop as data, for whoever stops containers in the shim's place (N5). Owns nothing; what really happens in
//! a stop is [`crate::Pod`]'s to decide when it happens.

use std::time::Duration;

use crate::container::Part;
use crate::event::ContainerId;
use crate::pod::Pod;
use crate::shutdown::FLOOR;

/// Where one container stands in a stop, among those that exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopOrder {
    /// The sandbox, which is stopped only when it is gone; `None` of the sandbox itself, or where there is none.
    pub outlived_by: Option<ContainerId>,
    /// From its stop signal to SIGKILL: its grace, and the floor.
    pub grace: Duration,
}

impl Pod {
    /// How a container stands in a stop for systemd: the sandbox outlives all, and R6 forbids to say more (N5). `None` in
    /// a pod without a plan, whose order is nobody's business here.
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
