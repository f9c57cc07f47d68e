//! The words that the shim counts by and the commands print.

use protobuf::Enum;

use crate::StopReason;
use crate::event::Cause;

impl StopReason {
    /// All of them: what a pod that stops can have.
    pub fn reasons() -> impl Iterator<Item = Self> {
        Self::VALUES.iter().copied().filter(|reason| *reason != Self::NOT_STOPPING)
    }

    /// Its word in `podshim ps --json`, and the label of `podshim_stops`. Scripts and alerts rely on it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::NOT_STOPPING => "not-stopping",
            Self::CALLER => "caller",
            Self::SANDBOX_ENDED => "sandbox",
            Self::REQUESTED => "requested",
            Self::ZERO_GRACE => "zero-grace",
            Self::MAINS_DONE => "completed",
            Self::INIT_FAILED => "init-failed",
            Self::SIDECAR_FAILED => "sidecar-failed",
            Self::FATAL => "fatal",
            Self::RESTART => "restart",
        }
    }
}

impl Cause {
    /// Its word in the log, in `podshim watch --json`, and the label of `podshim_forced_kills`.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::NO_CAUSE => "no-cause",
            Self::BY_CALLER => "caller",
            Self::TURN => "turn",
            Self::BUDGET => "budget",
            Self::GRACE => "grace",
            Self::RESTART => "restart",
            Self::NOT_RUN => "not-run",
        }
    }

    /// It for people.
    #[must_use]
    pub const fn because(self) -> &'static str {
        match self {
            Self::NO_CAUSE => "",
            Self::BY_CALLER => "from its caller",
            Self::TURN => "its turn in the stop",
            Self::BUDGET => "its part of the pod's time is over",
            Self::GRACE => "its own time is over",
            Self::RESTART => "it is to be started again",
            Self::NOT_RUN => "its program is not to run",
        }
    }
}
