//! The one budget of a stop (T5): who counts its time, how much of it is used, and that it only gets shorter (T9).

use std::time::Duration;

use crate::shutdown::{FLOOR, StopCause};
use crate::time::PodTime;

/// T5: who counts the time, and how much of it is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Budget {
    /// The caller counts; its SIGKILL ends the budget (T7).
    Callers,
    /// podshim counts: the last call is due at `at`, and SIGKILL at `kill_at`, which may be the same moment.
    Until { at: PodTime, kill_at: PodTime },
    /// T6: every container has had a stop signal; SIGKILL is due at `kill_at`.
    LastCall { kill_at: PodTime },
    /// Every container has been killed.
    Spent,
}

impl Budget {
    /// T9: a new limit shortens and never extends.
    pub(crate) fn tightened(self, cause: StopCause, limit: Option<PodTime>) -> Self {
        let Some(limit) = limit else { return self };
        let floor = match cause {
            StopCause::Sandbox(_) | StopCause::ZeroGrace => Duration::ZERO,
            _ => FLOOR,
        };
        let own = limit + floor;
        match self {
            Self::Callers => Self::Until { at: limit, kill_at: own },
            Self::Until { at, kill_at } => Self::Until { at: at.min(limit), kill_at: kill_at.min(own) },
            Self::LastCall { kill_at } => Self::LastCall { kill_at: kill_at.min(own) },
            Self::Spent => Self::Spent,
        }
    }
}
