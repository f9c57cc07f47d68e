//! The promises about restarts: which exits podshim restarts after, and which it shows.

use pod_lifecycle::{ContainerId, Exit, Request};
use pod_spec::{CodeSet, RestartMode, RestartPolicy, Role};

use super::picture::Container;
use super::{Invariants, Verdict};

impl Invariants {
    /// R1, R4, R7, I2, I3: which containers that have run are started again.
    pub(super) fn may_restart(&self, id: &ContainerId) -> Verdict {
        let container = &self.containers[id];
        let member = self.member(&container.name);
        // V4: one of a pair is recreated in order to be held.
        if member.is_some_and(|member| member.pair.is_some()) {
            return Ok(());
        }
        let never = self.policy() == Some(RestartPolicy::Never);
        let usual = match container.role {
            Some(Role::Sidecar) => RestartMode::Always,
            Some(Role::Init) if !never => RestartMode::OnFailure,
            _ => RestartMode::Never,
        };
        let restart = member.and_then(|member| member.restart);
        // I7, U4: podshim restarts one of a group with the others, and one that did not get ready because of that.
        let ended_by_us =
            container.stop_signals > 0 || container.gate_failed || container.was_killed_for_restart();
        let allowed = match restart.map_or(usual, |restart| restart.mode) {
            RestartMode::Always => true,
            RestartMode::OnFailure => {
                // R13. What podshim could not start has not exited.
                let codes = restart.map_or(CodeSet::FAILURES, |restart| restart.codes);
                ended_by_us
                    || !container.exited_in_program
                    || container.last_exit.is_none_or(|exit| codes.contains(container.counted(exit.code)))
            }
            RestartMode::Never | RestartMode::Visible => ended_by_us && container.role == Some(Role::Init),
        };
        // T12: podshim ended it in a stop that was taken back; where that is not certain it may have.
        if container.taken_back || (!self.is_read && container.stop_signals > 0) {
            return Ok(());
        }
        if !allowed {
            return self.violated(format!("{id} is restarted, which is its caller's to do (R4, R7)"));
        }
        let limit = restart.and_then(|restart| restart.limit);
        if limit.is_some_and(|limit| container.restarts >= limit) && !ended_by_us {
            return self.violated(format!("{id} is restarted once more than its limit (R4)"));
        }
        Ok(())
    }

    /// R13: no caller sees an exit with a code after which podshim restarts the container, unless that container or
    /// its pod is to end.
    pub(super) fn may_show(&self, id: &ContainerId, real: Exit) -> Verdict {
        let Some(container) = self.containers.get(id) else { return Ok(()) };
        let restart = self.member(&container.name).filter(|member| member.pair.is_none());
        let Some(restart) = restart.and_then(|member| member.restart) else { return Ok(()) };
        // In a failed pod nothing is restarted, not even when its stop is over (I2).
        let ends = !self.is_read || self.was_stopped || self.sandbox_gone;
        let asked = self.is_asked_to_end(id, container);
        let by_itself = container.exited_in_program && container.stop_signals == 0 && !container.killed;
        let counts = restart.mode == RestartMode::OnFailure && restart.limit.is_none();
        if counts && by_itself && !asked && !ends && restart.codes.contains(real.code) {
            return self.violated(format!("{id} is shown with {}, and not restarted (R13)", real.code));
        }
        Ok(())
    }

    fn is_asked_to_end(&self, id: &ContainerId, container: &Container) -> bool {
        // A kill may be answered after the exit that it made final.
        let kills =
            |request: &Request| matches!(request, Request::Kill { target, .. } if target.container == *id);
        self.is_asked(&container.name) || container.caller_killed || self.requests.values().any(kills)
    }
}
