//! The one budget of a stop (T5): who counts its time, how far that has come, and that it only gets shorter (T9).

use std::time::Duration;

use crate::shutdown::{FLOOR, StopCause};
use crate::time::PodTime;

/// T5: who counts the time, and how far it has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Budget {
    /// The caller does; its SIGKILL ends it (T7).
    Callers,
    /// We do.
    Until(PodTime),
    /// T6: everybody has had a stop signal; SIGKILL is due then.
    LastCall { kill_at: PodTime },
    /// Everything has been killed.
    Spent,
}

impl Budget {
    /// T9: a new limit shortens and never extends.
    pub(crate) fn tightened(self, cause: StopCause, limit: Option<PodTime>) -> Self {
        match (self, limit) {
            (budget, None) | (budget @ Self::Spent, _) => budget,
            (Self::Callers, Some(limit)) => Self::Until(limit),
            (Self::Until(until), Some(limit)) => Self::Until(until.min(limit)),
            (Self::LastCall { kill_at }, Some(limit)) => {
                let floor = if matches!(cause, StopCause::Sandbox(_) | StopCause::ZeroGrace) {
                    Duration::ZERO
                } else {
                    FLOOR
                };
                Self::LastCall { kill_at: kill_at.min(limit + floor) }
            }
        }
    }
}
