//! Which exit code callers see (J2 to J4, J10).
//!
//! Owns the mapping from a real code to a shown one, in one place. Decides nothing else.

use pod_spec::{ExitCodes, Gate, RestartMode, RestartPolicy, Role, Signal};

use crate::container::{Container, Phase};
use crate::event::Exit;
use crate::member::GateState;
use crate::pod::Pod;
use crate::restart::code_of_signal;
use crate::shutdown::{Stop, StopCause};

impl Pod {
    /// What callers see of an exit.
    pub(crate) fn shown_exit(&self, container: &Container, real: Exit) -> Exit {
        let code = container.member().map_or(real.code, |index| self.shown_code(container, index, real.code));
        Exit { code, ..real }
    }

    fn shown_code(&self, container: &Container, index: usize, real: u32) -> u32 {
        let role = self.members[index].member.role;
        let by_code = self.policy() == RestartPolicy::OnFailure;
        // J4.
        if container.stop.obeyed {
            return real;
        }
        match (&self.stop, role) {
            (Some(stop), Role::Sidecar) if by_code && stop.goes_on() => not_zero(real),
            (Some(_), Role::Sidecar) if self.masks_exit_codes() => 0,
            // A complete job would never end if its caller ran this init again.
            (Some(Stop { cause: StopCause::Completed, .. }), Role::Init) if by_code => 0,
            // J10: an interrupted main must not be taken for a finished one.
            (Some(stop), Role::Main)
                if by_code && stop.is_ours() && stop.goes_on() && container.is_interrupted() =>
            {
                not_zero(real)
            }
            (None, Role::Sidecar) if by_code && !self.may_show_success(container, index) => not_zero(real),
            _ => real,
        }
    }

    /// Under OnFailure: whether a sidecar that exits with 0 outside of a stop may show that. Its caller would not run
    /// it again, so only a sidecar that may stay away shows 0.
    fn may_show_success(&self, container: &Container, index: usize) -> bool {
        let state = &self.members[index];
        let kept_running = state.member.restart.is_none_or(|restart| restart.mode == RestartMode::Always);
        let still_needed = state.gate != GateState::Open && state.member.gate != Gate::Skip;
        let stopped_alone = state.asked.is_some() && container.stop.term_at.is_some();
        !kept_running && !still_needed && !stopped_alone && !state.is_fatal(0)
    }

    fn masks_exit_codes(&self) -> bool {
        self.plan.as_ref().is_some_and(|plan| plan.exit_codes == ExitCodes::Masked)
    }
}

impl Container {
    /// Whether a stop interrupts its work: it was signalled, or was about to be restarted (R7).
    fn is_interrupted(&self) -> bool {
        self.stop.term_at.is_some()
            || matches!(self.phase, Phase::BackingOff { .. } | Phase::Recreating { .. })
    }
}

/// J10: shows 0 as the code of a program that SIGTERM ended.
fn not_zero(code: u32) -> u32 {
    if code == 0 { code_of_signal(Signal::TERM.number()) } else { code }
}
