//! Which process the kernel kills first (N8): no sidecar before the mains that exist.

use pod_lifecycle::ContainerId;
use pod_spec::{OomScore, Role};

use super::picture::{Container, Process};
use super::{Invariants, Verdict};

impl Invariants {
    fn protects(&self) -> bool {
        self.plan.as_ref().is_some_and(|plan| plan.settings.oom_score == OomScore::Protect)
    }

    fn mains(&self) -> impl Iterator<Item = &Container> {
        let mains = self.containers.values().filter(|container| container.role == Some(Role::Main));
        mains.filter(|main| main.shown.is_none())
    }

    /// N8: only with `protect`, only for a sidecar's process, and not lower than a main's value.
    pub(super) fn limited(&mut self, id: &ContainerId, highest: i32) -> Verdict {
        let lowest_of_a_main = self.mains().filter_map(|main| main.own_oom_score).min();
        let protects = self.protects();
        let sidecar = self.containers.get_mut(id).filter(|container| container.role == Some(Role::Sidecar));
        match sidecar.filter(|sidecar| sidecar.process != Process::None) {
            Some(sidecar) if protects && lowest_of_a_main == Some(highest) => {
                sidecar.oom_score = sidecar.oom_score.map(|score| score.min(highest));
                Ok(())
            }
            _ => self.violated(format!("the OOM score of {id} is limited to {highest} (N8)")),
        }
    }

    pub(super) fn check_oom_scores(&self) -> Verdict {
        // A main whose create is under way may still fail.
        let created = self.mains().filter(|main| main.incarnation > 0);
        let Some(lowest) = created.filter_map(|main| main.own_oom_score).min().filter(|_| self.protects())
        else {
            return Ok(());
        };
        let above = self.containers.iter().find(|(_, container)| {
            let live = container.role == Some(Role::Sidecar) && container.process != Process::None;
            live && container.oom_score.is_some_and(|score| score > lowest)
        });
        match above {
            Some((id, _)) => self.violated(format!("{id} is killed before a main with {lowest} (N8)")),
            None => Ok(()),
        }
    }
}
