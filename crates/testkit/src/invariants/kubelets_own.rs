//! What is the kubelet's own by the pod's object, and what becomes of what was a main before that was known (S15).

use std::collections::BTreeSet;

use pod_lifecycle::ContainerId;
use pod_spec::Role;

use super::picture::{Container, Process};
use super::{Invariants, Verdict};

impl Invariants {
    /// What was not started leaves the plan; what is held must have been let go. Not in a stop, nor while one is asked for.
    pub(super) fn check_kubelets_own(&mut self) -> Verdict {
        if self.facts.is_empty() || !self.is_read || !self.may_leave() {
            return Ok(());
        }
        let own: Vec<_> = self.own_mains().map(|(id, own)| (id.clone(), own.is_held())).collect();
        for (id, is_held) in own {
            if is_held {
                return self.violated(format!("{id} is held, and is its kubelet's own (S15)"));
            }
            self.leaves_plan(&id);
        }
        Ok(())
    }

    /// A container whose program is about to start. Where the stops are not read it may have left the plan.
    pub(super) fn leaves_plan_if_own(&mut self, id: &ContainerId) {
        let is_own = self.own_mains().any(|(own, _)| own == id);
        if is_own && (!self.is_read || self.may_leave()) {
            self.leaves_plan(id);
        }
    }

    fn may_leave(&self) -> bool {
        self.stop.is_none() && self.members.values().all(|member| member.asked.is_none())
    }

    /// The mains that only `*=main` names, that are their kubelet's own, and whose programs have not been started.
    fn own_mains(&self) -> impl Iterator<Item = (&ContainerId, &Container)> {
        self.containers.iter().filter(|(_, it)| {
            let waits = matches!(it.process, Process::RuntimeInit { .. }) && !it.is_dying && !it.is_starting;
            let is_main = it.role == Some(Role::Main) && self.member(&it.name).is_none();
            is_main && self.facts.contains(&it.name) && waits && (!it.started || it.is_held())
        })
    }

    /// I5, T18: nor does its creation show any more that its caller waits for no init.
    fn leaves_plan(&mut self, id: &ContainerId) {
        let Some(container) = self.containers.get_mut(id) else { return };
        container.role = None;
        let name = container.name.clone();
        self.newest.remove(&name);
        self.members.remove(&name);
        self.known.remove(&name);
        let role = |other: &str| self.member(other).map_or(Role::Main, |member| member.role);
        let others = self.known.iter().flat_map(|other| self.inits_before(other, role(other)));
        let followed: BTreeSet<String> = others.collect();
        for init in self.inits_before(&name, Role::Main) {
            if let Some(picture) = self.members.get_mut(&init) {
                picture.is_followed &= followed.contains(&init);
            }
        }
    }
}
