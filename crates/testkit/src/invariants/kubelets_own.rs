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

    fn leaves_plan(&mut self, id: &ContainerId) {
        let Some(container) = self.containers.get_mut(id) else { return };
        container.role = None;
        self.newest.remove(&container.name);
        self.members.remove(&container.name);
    }

    /// I5, T18: nor does their creation show any more that their caller waits for no init.
    pub(super) fn learns(&mut self, names: &BTreeSet<String>) {
        self.facts.extend(names.iter().cloned());
        let Some(plan) = &self.plan else { return };
        let role = |other: &str| self.member(other).map_or(Role::Main, |member| member.role);
        let others = self.known.iter().filter(|it| self.member(it).is_some() || !self.facts.contains(*it));
        let followed: BTreeSet<_> = others.flat_map(|other| self.inits_before(other, role(other))).collect();
        let inits = plan.members.iter().filter(|member| member.role == Role::Init);
        for init in inits.map(|init| &init.name).filter(|init| !followed.contains(*init)) {
            if let Some(picture) = self.members.get_mut(init) {
                picture.is_followed = false;
            }
        }
    }
}
