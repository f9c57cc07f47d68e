//! What a create of a planned container means for the pod, and what another round (T12, T14, T18, J11, I4).

use std::collections::BTreeSet;

use pod_lifecycle::{ContainerId, Hook, KubeletType};
use pod_spec::{RestartPolicy, Role};

use super::picture::{Container, MemberPicture, Process};
use super::stop::{Cause, End};
use super::{Invariants, Verdict};

impl Invariants {
    /// I4, T18: a completed init gets another process only if its caller makes the pod from the start, when nothing of it is
    /// left. What follows from that is not read.
    pub(super) fn may_run_again(&mut self, id: &ContainerId) -> Verdict {
        let container = &self.containers[id];
        let name = container.name.clone();
        let is_completed = self.members.get(&name).is_some_and(|member| member.completed);
        if container.role != Some(Role::Init) || !is_completed {
            return Ok(());
        }
        // T14: if that begins another round, what is not ready is asked from the start. Whether it does is not read.
        self.members.values_mut().for_each(MemberPicture::may_count_from_zero);
        if !self.is_read {
            return Ok(());
        }
        let waits = |it: &Container| self.waits(&it.name).iter().any(|(other, _)| *other == name);
        let left = self.planned().find(|(_, it)| {
            let comes_after = it.role == Some(Role::Main) || waits(it);
            it.name != name && it.shown.is_none() && it.started && comes_after
        });
        if let Some((left, _)) = left {
            return self.violated(format!("{id} runs again, though {left} lives (I4, T18)"));
        }
        // T18: what waits for it waits until it has completed once more.
        let waiting: Vec<_> = self
            .members
            .keys()
            .filter(|other| self.is_gone(other) && self.waits(other).iter().any(|(init, _)| *init == name))
            .cloned()
            .collect();
        for other in waiting {
            self.members.entry(other).or_default().waits_again();
        }
        self.members.entry(name).or_default().completed = false;
        self.leaves_the_reading();
        Ok(())
    }

    /// A create of a planned container begins.
    pub(super) fn created(&mut self, id: &ContainerId) {
        let container = &self.containers[id];
        let Some(role) = container.role else { return };
        let (name, of_kubelet) = (container.name.clone(), container.kubelet.is_some());
        let kubelet_type = container.kubelet_type;
        let is_job = self.policy().is_some_and(|policy| policy != RestartPolicy::Always);
        let (now, never) = (self.now, self.policy() == Some(RestartPolicy::Never));
        self.follows_inits(&name, role);
        let picture = self.members.entry(name.clone()).or_default();
        picture.is_main = role == Role::Main;
        picture.kubelet_type = kubelet_type;
        picture.was_native |= kubelet_type == Some(KubeletType::Init) && role == Role::Sidecar;
        // T12: what its predecessor was asked does not count for the new container.
        (picture.asked, picture.is_alone) = (None, false);
        // J11: a main of a job keeps its end until it runs again, once that counts (T15); but under Never one that has failed
        // is created once more on purpose.
        let counts = |end: &End| end.counts_from <= now && !(never && end.ran && end.code != 0);
        picture.end = picture.end.filter(|end| is_job && role == Role::Main && counts(end));
        if let Some(making) = &mut self.making {
            making.asked.remove(&name);
        }
        self.making = self.making.take().filter(|making| !making.asked.is_empty());
        self.last_create = now;
        if let Some(container) = self.containers.get_mut(id) {
            container.is_latecomer = self.stop.is_some();
        }
        self.newest.insert(name.clone(), id.clone());
        if !self.known.insert(name.clone()) {
            self.another_until.get_or_insert(now + self.defaults().replace_wait);
        }
        if self.failed.as_ref() == Some(&name) {
            self.failed = None;
        }
        // I2, T18: what comes before the failed init may be made from the start.
        if self.failed.is_some() && self.members.keys().all(|other| *other == name || self.is_gone(other)) {
            self.leaves_the_reading();
        }
        if of_kubelet && self.is_read {
            self.kubelet_creates();
        }
        // J11: a completion that is no longer one is taken back.
        let completes = self.is_read && self.is_complete();
        if let Some(stop) = self.stop.filter(|it| it.cause == Cause::Completed && self.is_read && !completes)
        {
            self.end_stop(stop);
        }
    }

    /// T18, I5: what comes after an init is created.
    fn follows_inits(&mut self, name: &str, role: Role) {
        for init in self.inits_before(name, role) {
            let picture = self.members.entry(init).or_default();
            picture.is_followed |= !picture.completed;
        }
    }

    /// The inits that something of that name comes after.
    pub(super) fn inits_before(&self, name: &str, role: Role) -> Vec<String> {
        let Some(plan) = &self.plan else { return Vec::new() };
        let new = plan.members.iter().position(|member| member.name == name);
        let entry = new.map(|index| plan.members[index].entry);
        let inits = plan.members.iter().enumerate().filter(|(_, member)| member.role == Role::Init);
        let followed = inits.filter(|(index, init)| {
            let later_of_group = entry == Some(init.entry) && new > Some(*index);
            role == Role::Main || self.waits_through(name, &init.name) || later_of_group
        });
        followed.map(|(_, init)| init.name.clone()).collect()
    }

    /// T14: another round begins.
    pub(super) fn round_ends(&mut self) {
        self.rounds += 1;
        let living: Vec<_> = self
            .containers
            .values()
            .filter(|container| container.role.is_some() && container.has_run && container.shown.is_none())
            .map(|container| container.name.clone())
            .collect();
        let (now, pod_grace) = (self.now, self.pod_grace());
        // U4, V4: what podshim had begun to end in order to restart it ends all the same.
        let is_replaced = |it: &Container| it.gate_failed || self.may_be_replaced(it);
        let replaced: BTreeSet<_> =
            self.containers.iter().filter(|(_, it)| is_replaced(it)).map(|(id, _)| id.clone()).collect();
        for (id, container) in &mut self.containers {
            let switch_fails = container.migrated == Some(false) || container.hook == Some(Hook::Migrate);
            let has_begun = container.ends_since.is_some() || switch_fails;
            container.is_replaced |= replaced.contains(id) && has_begun;
            let asked = self.members.get(&container.name).is_some_and(|member| member.asked.is_some());
            // T3, T12: what a caller stopped in this round or before keeps its signal for its turn.
            let own = container.stop_signals > 0 || container.asked_ever;
            // T12: a hook before a signal that did not come belonged to a stop that was taken back, and what ran at T0 was no part of an end.
            // What its caller has stopped and has its signal, or waits for its hook, goes on with that.
            let has_hooks = container.hooks_run.contains(&Hook::OnTerminate) || container.hook.is_some();
            let is_sidecar = container.role == Some(Role::Sidecar);
            let is_ending = container.stop_signals > 0 || container.hook.is_some();
            let goes_on = !is_sidecar && container.asked_ever && is_ending;
            if has_hooks && !goes_on && !replaced.contains(id) && !container.ends_for_group {
                // T8: the time of a sidecar does not begin with what ran at T0, and another turn has time of its own.
                container.ends_since = container.hook.map(|_| now);
            }
            if container.hook.is_some() && container.stop_signals == 0 {
                let own = self.plan.as_ref().and_then(|plan| plan.member(&container.name)?.1.grace);
                container.own_time = own.unwrap_or(pod_grace);
            }
            // H1: a main or an init that its caller has stopped ends, whatever becomes of the pod's stop.
            if is_sidecar || !container.asked_ever {
                // Which one of a pair is replaced is not read.
                let is_kept = own || container.gate_failed;
                container.hooks_run.retain(|hook| *hook != Hook::OnTerminate && is_kept);
            }
            container.taken_back |= container.runs_program() && is_sidecar && own && !container.asked_ever;
            container.held_since = now;
            container.turn_time = None;
            container.has_last_signal &= !is_sidecar;
            container.is_latecomer = false;
            // I4: what went on after a stop was interrupted by nothing but its own signal.
            if container.process != Process::None {
                container.interrupted &= container.stop_signals > 0 || !is_sidecar && asked;
            }
        }
        let is_job = self.policy().is_some_and(|policy| policy != RestartPolicy::Always);
        for (name, picture) in &mut self.members {
            // I8: what podshim gave up and its caller recreated may run behind an open gate, with nothing to ask it.
            let was_given_up = std::mem::take(&mut picture.is_given_up);
            (picture.asked, picture.is_alone) = (None, false);
            picture.counted_from_zero();
            if living.contains(name) {
                picture.maybe_open |= was_given_up;
                picture.lives_on()
            } else {
                picture.waits_again()
            }
            // J11.
            if !is_job {
                picture.end = None;
            }
        }
    }
}
