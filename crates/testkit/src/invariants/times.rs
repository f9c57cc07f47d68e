//! When SIGKILL comes, and when a hold ends (T7, T8, T17, K9, K10, K11, U6, J9).

use std::time::Duration;

use pod_lifecycle::{ContainerId, Hook, PodTime};
use pod_spec::Role;

use super::picture::Container;
use super::stop::Cause;
use super::{Invariants, Verdict};

/// T7: from the stop signal for a caller's SIGKILL to that.
const EARLY_KILL: Duration = Duration::from_millis(1500);
/// T8: what a signal that waited for hooks has at least.
const AFTER_HOOKS: Duration = Duration::from_secs(2);

impl Invariants {
    pub(super) fn check_times(&self) -> Verdict {
        for (id, container) in &self.containers {
            if container.is_held() {
                self.check_hold_time(id, container)?;
            } else if container.role.is_some() && container.runs_program() && !container.killed {
                self.check_kill_time(id, container)?;
            }
        }
        Ok(())
    }

    /// U6: whether a container is held longer than `gate-timeout` allows.
    pub(super) fn is_held_too_long(&self, container: &Container) -> bool {
        let limit = self.plan.as_ref().and_then(|plan| plan.settings.gate_timeout);
        container.is_held()
            && container.role.is_some()
            && self.stop.is_none()
            && limit.is_some_and(|limit| container.held_since + limit <= self.now)
    }

    fn check_hold_time(&self, id: &ContainerId, container: &Container) -> Verdict {
        // V1: no limit counts for a standby.
        match self.is_held_too_long(container) && self.partner(&container.name).is_none() {
            true => self.violated(format!("{id} is held for longer than gate-timeout (U6)")),
            false => Ok(()),
        }
    }

    /// K9, T7, T8, T17: SIGKILL is not late.
    fn check_kill_time(&self, id: &ContainerId, container: &Container) -> Verdict {
        let is_sidecar = container.role == Some(Role::Sidecar);
        let zero_grace = self.stop.is_some_and(|stop| stop.had_zero_grace);
        self.check_part(id, container)?;
        if !is_sidecar && container.begun && self.zero_grace_of_mains().is_some_and(|at| at <= self.now) {
            return self.violated(format!("{id} lives beyond its part of the short stop (K11)"));
        }
        let Some(signalled_at) = container.signalled_at else {
            let lost = is_sidecar && container.caller_killed && !zero_grace && container.begun;
            return match lost {
                true => self.violated(format!("{id} goes on after its caller's SIGKILL (T7)")),
                false => Ok(()),
            };
        };
        if is_sidecar && container.caller_killed && !zero_grace && self.now >= signalled_at + EARLY_KILL {
            return self
                .violated(format!("{id} lives 1.5 s after the signal for its caller's SIGKILL (T7, K9)"));
        }
        let Some(member) = self.member(&container.name) else { return Ok(()) };
        let unasked = self.stop.is_some_and(|stop| stop.cause == Cause::Caller && stop.budget.is_none())
            && is_sidecar
            && !container.asked_ever;
        let grace = match self.own_grace(&member.name) {
            Some(grace) => grace,
            None if unasked => container.own_time,
            None => return Ok(()),
        };
        // T20: what had its signal when the stop got less time counts from that.
        let was_signalled = self.stop.and_then(|stop| stop.budget).is_some_and(|it| signalled_at <= it.since);
        let begun = container.ends_since.filter(|_| !was_signalled).unwrap_or(signalled_at);
        // The end of the hooks may be all that is left of it.
        let due = (begun + grace).max(signalled_at + grace.min(AFTER_HOOKS));
        // on-terminate runs at T0, and a sidecar's own time begins in its turn.
        let is_clear = !container.hooks_run.contains(&Hook::OnTerminate);
        match self.now >= due && is_clear {
            true => self.violated(format!("{id} lives after its grace (T8, T17)")),
            false => Ok(()),
        }
    }

    /// K11: when mains and inits have had their two thirds of a stop that a caller's SIGKILL began.
    fn zero_grace_of_mains(&self) -> Option<PodTime> {
        let stop = self.stop.filter(|stop| stop.cause == Cause::ZeroGrace)?;
        Some(stop.since + stop.budget?.ends.since(stop.since) * 2 / 3)
    }

    /// K10, K11, T7: SIGKILL for a sidecar is not early.
    pub(super) fn may_kill_sidecar(&self, id: &ContainerId) -> Verdict {
        let container = &self.containers[id];
        let has_time = self.is_read && container.begun && self.partner(&container.name).is_none();
        let is_over = self.stop.is_some_and(|stop| {
            stop.had_zero_grace || stop.budget.is_some_and(|budget| budget.kills <= self.now)
        }) || self.may_have_last_kill(container);
        if !has_time || is_over || container.is_obeyed || container.killed {
            return Ok(());
        }
        match container.signalled_at {
            // It was stopped while it was being started, and has its signal only now.
            Some(at) if at == container.begun_at => Ok(()),
            Some(at) if at + container.own_time.min(EARLY_KILL) <= self.now => Ok(()),
            _ => self.violated(format!("sidecar {id} gets SIGKILL too early (K10, K11)")),
        }
    }

    /// T11: a caller's stop ends only what its caller stops, but for a standby; and what is created in one is held until it is over.
    pub(super) fn may_end_held(&self, id: &ContainerId) -> Verdict {
        let container = &self.containers[id];
        let stays = self.stop.is_some_and(|stop| match stop.cause {
            Cause::Caller => self.partner(&container.name).is_none(),
            _ => container.is_latecomer && !stop.is_for_good(),
        });
        let is_asked = self.is_asked(&container.name) || container.asked_ever || self.is_asked_for(id);
        let may_stay = self.is_read && stays && !is_asked && self.failed.is_none() && !self.is_complete();
        match may_stay && container.is_held() && !container.ran && container.role.is_some() {
            true => self.violated(format!("{id} is held in a stop, and ends in it (T11)")),
            false => Ok(()),
        }
    }

    /// J9, V2: whether one of a pair may end as a main has failed, after a caller's stop that was over at once, or at the beginning of
    /// that stop. Which one stands by is not read.
    pub(super) fn may_be_lost_in_pair(&self, id: &ContainerId) -> bool {
        let begins = self.stop.is_some_and(|stop| stop.cause == Cause::Caller && stop.since == self.now);
        let is_lost =
            |it: &Container| it.is_held() && self.partner(&it.name).is_some() && self.waits_for_lost_main(it);
        begins && self.containers.get(id).is_some_and(is_lost)
    }

    /// J9: whether podshim has a reason to end a container before its program runs.
    pub(super) fn may_never_start(&self, container: &Container) -> bool {
        let lost = self.failed.is_some() || self.waits_for_lost_main(container);
        // J11: in a complete pod a main ends with the code that it had.
        !self.is_read || lost || self.is_held_too_long(container) || self.is_complete()
    }
}
