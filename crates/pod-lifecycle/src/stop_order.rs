//! The order of a stop as data, for whoever stops containers in the shim's place (N5). Owns nothing; what really happens in
//! a stop is [`crate::Pod`]'s to decide when it happens.

use std::time::Duration;

use crate::container::{Container, Part};
use crate::event::ContainerId;
use crate::pod::Pod;
use crate::shutdown::FLOOR;

/// Where one container stands in a stop, among those that exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopOrder {
    /// Those that are stopped only when it is gone.
    pub outlived_by: Vec<ContainerId>,
    /// Those that must be gone before it is stopped.
    pub outlives: Vec<ContainerId>,
    /// From its stop signal to SIGKILL: its grace, and the floor.
    pub grace: Duration,
}

impl Pod {
    /// Where a container stands in a stop (T1; the sandbox outlives all). `None` in a pod without a plan, whose order is
    /// nobody's business here.
    pub fn stop_order(&self, id: &ContainerId) -> Option<StopOrder> {
        self.plan.as_ref()?;
        let own = self.containers.get(id)?;
        let others = |wanted: &dyn Fn(&Container) -> bool| {
            let others = self.containers.values().filter(|other| other.id != *id && wanted(other));
            others.map(|other| other.id.clone()).collect()
        };
        Some(StopOrder {
            outlived_by: others(&|other| self.outlives(other, own)),
            outlives: others(&|other| self.outlives(own, other)),
            grace: self.grace_of(id) + FLOOR,
        })
    }

    fn outlives(&self, longer: &Container, other: &Container) -> bool {
        match (longer.part, other.part) {
            (Part::Sandbox, _) => true,
            (Part::Member(earlier), Part::Member(later)) => {
                self.members[earlier].member.role == pod_spec::Role::Sidecar
                    && Self::needs(&self.members[later], earlier)
            }
            _ => false,
        }
    }
}
