//! What must have happened when an event has been handled: nothing that may go on is held up, and nothing that must end is
//! left alone (S6, S8, S9, I2, I3, I7, U4, T1, T2, T16).

use pod_lifecycle::{ContainerId, KubeletHook, TaskKind};
use pod_spec::{RestartMode, RestartPolicy, Role};

use super::picture::{Container, Process};
use super::{Invariants, Verdict};

impl Invariants {
    /// What the pod as it is now must not have.
    pub(super) fn check_consequences(&self) -> Verdict {
        for (id, container) in &self.containers {
            if container.is_held() {
                self.check_hold(id, container)?;
            } else if container.is_untouched() && container.role.is_some() {
                self.check_untouched(id, container)?;
            }
        }
        Ok(())
    }

    /// S6, S8, S9, I2: a held container has something in its way, and can still start.
    fn check_hold(&self, id: &ContainerId, container: &Container) -> Verdict {
        if container.role.is_none() && container.kind == TaskKind::Container {
            return self.violated(format!("{id} is held, and the plan does not have it (S8)"));
        }
        let Some(member) = self.members.get(&container.name).filter(|_| container.role.is_some()) else {
            return Ok(());
        };
        let stands_by = self.partner(&container.name).is_some();
        if let Some(failed) = &self.failed {
            let is_exempt = stands_by || self.stop.is_none() && (container.is_native() || member.was_native);
            let ends = !container.ran && !is_exempt;
            return if ends {
                self.violated(format!("{id} is held, and {failed} has failed its pod (I2)"))
            } else {
                Ok(())
            };
        }
        if self.stop.is_some() || stands_by || self.sandbox_gone {
            return Ok(());
        }
        if member.released {
            return self.violated(format!("{id} is held, though it was released in this round (S6, R6)"));
        }
        let waits_for_pair = self.waits(&container.name).iter().any(|(name, _)| self.partner(name).is_some());
        let is_unsure = |(name, condition): &(String, _)| self.maybe_lets(name, *condition);
        let is_certain = !waits_for_pair
            && !self.waits_for_given_up(&container.name)
            && !self.waits(&container.name).iter().any(is_unsure);
        if is_certain && self.blocker(&container.name).is_none() {
            return self.violated(format!("{id} is held, though nothing is in its way (S9, U3)"));
        }
        Ok(())
    }

    /// T1, T2, T16, U4: a program that nothing has been done to may go on.
    fn check_untouched(&self, id: &ContainerId, container: &Container) -> Verdict {
        let is_sidecar = container.role == Some(Role::Sidecar);
        let stands_by = self.partner(&container.name).is_some();
        if container.gate_failed && !stands_by {
            return self.violated(format!("{id} did not get ready and goes on (U4)"));
        }
        match self.stop {
            Some(stop) if stop.is_own() && !is_sidecar => {
                self.violated(format!("{id} has no stop signal in a stop of podshim's own (T2)"))
            }
            Some(_) if is_sidecar && !stands_by && self.turn_has_come(container) => {
                self.violated(format!("{id} has no stop signal in its turn (T1)"))
            }
            None if is_sidecar && !stands_by && self.is_judged_alone(container) => {
                self.violated(format!("{id} was stopped alone and goes on (T16)"))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn is_judged_alone(&self, container: &Container) -> bool {
        self.is_read
            && self.stop.is_none()
            && self.members.get(&container.name).is_some_and(|member| member.is_alone)
    }

    /// T16: decides on the stop in the making when its window is over, by what is known before this event: nothing has
    /// happened since.
    pub(super) fn judge_the_making(&mut self) {
        let Some(making) = self.making.take_if(|making| making.until <= self.now) else { return };
        let (Some(name), 1) = (making.asked.first(), making.asked.len()) else { return };
        let is_alone = self.is_stopped_alone(name);
        if let Some(member) = self.members.get_mut(name) {
            member.is_alone = is_alone;
        }
    }

    /// T16: whether that sidecar's stop can only be one of that container alone.
    fn is_stopped_alone(&self, name: &str) -> bool {
        let is_held = self.newest(name).is_some_and(|(id, it)| self.is_unfinished(id) && it.held.is_some());
        let mut mains =
            self.planned().filter(|(id, it)| it.role == Some(Role::Main) && self.lives(id)).peekable();
        self.stop.is_none()
            && is_held
            && mains.peek().is_some()
            && mains.all(|(_, main)| main.kubelet == Some(KubeletHook::None))
    }

    /// I7: the others of a group end with the one that failed. What an end means is judged once nothing else of the
    /// container is left.
    pub(super) fn check_ends(&mut self) -> Verdict {
        let ended: Vec<_> = self
            .containers
            .iter()
            .filter(|(id, it)| {
                let is_left = it.is_draining() || self.is_being_cleared(id) || self.has_starting_exec(id);
                it.has_just_ended && !it.is_starting && !is_left
            })
            .map(|(id, _)| id.clone())
            .collect();
        for id in ended {
            if let Some(container) = self.containers.get_mut(&id) {
                container.has_just_ended = false;
            }
            if self.is_read {
                self.check_end(&id)?;
                self.note_failed_group(&id);
            }
        }
        Ok(())
    }

    /// I7: when another of its group fails, one that is being started ends, without a hook, once its start is answered, whatever stops
    /// the pod meanwhile; so does one whose hook still runs of a stop that was taken back, in its time from now on.
    fn note_failed_group(&mut self, id: &ContainerId) {
        if !self.fails_in_its_group(id) {
            return;
        }
        let entry = self.entry_of(&self.containers[id]);
        let group = self.planned().filter(|(other, it)| *other != id && self.entry_of(it) == entry);
        let group: Vec<_> = group.map(|(id, _)| (id.clone(), self.own_time(id))).collect();
        let now = self.now;
        for (other, own_time) in group {
            let Some(other) = self.containers.get_mut(&other) else { continue };
            other.ends_for_group |= other.is_starting || other.hook.is_some();
            if other.hook.is_some() && other.ends_since.is_none() {
                (other.ends_since, other.own_time) = (Some(now), own_time);
            }
        }
    }

    fn entry_of(&self, container: &Container) -> Option<usize> {
        self.member(&container.name).map(|member| member.entry)
    }

    fn fails_in_its_group(&self, id: &ContainerId) -> bool {
        let container = &self.containers[id];
        let is_asked = self.is_asked(&container.name) || container.asked_ever;
        let by_itself = !container.interrupted
            && !container.gate_failed
            && !container.was_killed_for_restart()
            && !is_asked;
        let has_failed = container.last_exit.is_some_and(|exit| exit.code != 0);
        container.role == Some(Role::Init) && has_failed && by_itself && self.stop.is_none()
    }

    fn check_end(&self, id: &ContainerId) -> Verdict {
        let container = &self.containers[id];
        if container.last_exit.is_none() {
            return Ok(());
        }
        let is_asked = self.is_asked(&container.name) || container.asked_ever;
        if container.role == Some(Role::Main) && is_asked && container.shown.is_none() {
            return self
                .violated(format!("{id} was stopped by its caller, who does not see its end (R7, R14)"));
        }
        if !self.fails_in_its_group(id) || container.shown.is_some() {
            return Ok(());
        }
        let spared = self.planned().find(|(_, other)| {
            let same_group = self.entry_of(other) == self.entry_of(container);
            other.name != container.name
                && other.role == Some(Role::Init)
                && same_group
                && other.is_untouched()
        });
        match spared {
            Some((other, _)) => {
                self.violated(format!("{id} has failed, and {other} of its group goes on (I7)"))
            }
            None => Ok(()),
        }
    }

    /// I7: whether another init of its group has failed and waits for its restart.
    pub(super) fn is_of_failed_group(&self, container: &Container) -> bool {
        self.stop.is_none()
            && container.role == Some(Role::Init)
            && !container.asked_ever
            && self.planned().any(|(_, other)| {
                let has_failed =
                    other.exited_in_program && other.last_exit.is_some_and(|exit| exit.code != 0);
                other.name != container.name && has_failed && self.entry_of(other) == self.entry_of(container)
            })
    }

    /// R1, R2, R7, I3: whether podshim runs a program again after an exit with that code, as long as it may.
    pub(super) fn is_restarted_after(&self, container: &Container, code: u32) -> bool {
        let Some(member) = self.member(&container.name) else { return false };
        let never = self.policy() == Some(RestartPolicy::Never);
        let usual = match container.role {
            Some(Role::Sidecar) => RestartMode::Always,
            Some(Role::Init) if !never => RestartMode::OnFailure,
            _ => RestartMode::Never,
        };
        let spent = member.restart.and_then(|it| it.limit).is_some_and(|limit| container.restarts >= limit);
        let follows = match member.restart.map_or(usual, |restart| restart.mode) {
            RestartMode::Always => true,
            RestartMode::OnFailure => self.codes_of(&container.name).contains(container.counted(code)),
            RestartMode::Never | RestartMode::Visible => false,
        };
        follows && !spent && (member.fatal.is_none() || member.restart.is_some())
    }

    /// R2: in a stop a sidecar comes back as long as something needs it.
    pub(super) fn may_stay_away(&self, id: &ContainerId) -> Verdict {
        let container = &self.containers[id];
        let (Some(_), Some(exit)) = (self.stop.filter(|_| self.is_read), container.last_exit) else {
            return Ok(());
        };
        let comes_back = container.role == Some(Role::Sidecar)
            && container.ran
            // T16: what ended between two programs has ended.
            && container.exited_in_program
            && container.process == Process::None
            && container.started
            && self.partner(&container.name).is_none()
            && !container.caller_killed
            && !self.is_asked_to_kill(id)
            && !container.had_turn
            && !(container.gate_failed && container.asked_ever)
            && !self.sandbox_gone
            && !self.budget_is_over()
            && !self.may_have_last_signal(container)
            // T19, K11: its 1.5 s have shares of their own.
            && !(container.stop_signals > 0 && self.stop.is_some_and(|stop| stop.had_zero_grace))
            && self.failed.is_none()
            && self.is_restarted_after(container, exit.code);
        if comes_back && !self.may_have_its_turn(container) {
            return self.violated(format!("sidecar {id} stays away while a member that needs it runs (R2)"));
        }
        Ok(())
    }
}
