//! A stop of the pod (T12): its cause, and the one budget (T5), which only gets shorter (T9).

use std::time::Duration;

use pod_spec::Signal;

use crate::interface::exit::code_of_signal;
use crate::interface::inspection::{BudgetLeft, InspectedStop, StopReason};
use crate::interface::time::PodTime;

/// The time that every container still gets when the budget is spent, from the last stop signals to SIGKILL (T6; the
/// kubelet has the same as `minimumGracePeriodInSeconds`).
pub const MIN_KILL_DELAY: Duration = Duration::from_secs(2);

/// A stop of the pod (T12).
#[derive(Clone, Debug)]
pub(crate) struct Stop {
    pub(crate) cause: StopCause,
    pub(crate) budget: Budget,
    /// Until then the caller may still stop held containers too, after the stops that began this one (T11).
    pub(crate) others_until: PodTime,
}

/// Why a stop began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopCause {
    /// T12a.
    Caller,
    /// T12b.
    Sandbox(SandboxEnd),
    /// T12c: a signal to the shim.
    Requested,
    /// K11: SIGKILL where `zero-grace=order` makes a stop of it (T12c).
    ZeroGrace,
    /// T12c: the mains are done (J1).
    Completed,
    /// I2.
    InitFailed,
    /// I8.
    SidecarFailed,
    /// T12c: the end of a container that is fatal (R9).
    Fatal,
}

/// How a stop involves the sandbox.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SandboxEnd {
    /// K13: a caller stops it; the signal waits until nothing else is left.
    Killed(Signal),
    /// K13: pause has got its signal.
    Signalled,
    /// K16: it died by itself.
    Died,
}

impl Stop {
    /// T11: whether nothing may be created any more.
    pub(crate) fn is_for_good(&self) -> bool {
        matches!(self.cause, StopCause::Sandbox(_) | StopCause::Requested)
    }

    pub(crate) fn is_zero_grace(&self) -> bool {
        self.cause == StopCause::ZeroGrace
    }

    /// When its time is over, as long as podshim counts it and some is left.
    pub(crate) fn until(&self) -> Option<PodTime> {
        match self.budget {
            Budget::Until { at, .. } => Some(at),
            Budget::Callers | Budget::LastCall { .. } | Budget::Spent => None,
        }
    }

    /// T14: whether the pod may go on after it.
    pub(crate) fn goes_on(&self) -> bool {
        !self.is_for_good() && self.cause != StopCause::Completed
    }

    /// T2: whether podshim, not a caller, signals the mains.
    pub(crate) fn is_ours(&self) -> bool {
        self.cause != StopCause::Caller
    }

    /// The exit code of a container that this stop keeps from running (T11).
    pub(crate) fn code_of_held(&self) -> u32 {
        let by_kill = self.cause == StopCause::Sandbox(SandboxEnd::Killed(Signal::KILL));
        code_of_signal(if by_kill { Signal::KILL } else { Signal::TERM }.number())
    }
}

impl Stop {
    pub(crate) fn inspect(&self, now: PodTime) -> InspectedStop {
        InspectedStop {
            reason: match self.cause {
                StopCause::Caller => StopReason::Caller,
                StopCause::Sandbox(_) => StopReason::Sandbox,
                StopCause::Requested => StopReason::Requested,
                StopCause::ZeroGrace => StopReason::ZeroGrace,
                StopCause::Completed => StopReason::Completed,
                StopCause::InitFailed => StopReason::InitFailed,
                StopCause::SidecarFailed => StopReason::SidecarFailed,
                StopCause::Fatal => StopReason::Fatal,
            },
            budget: match self.budget {
                Budget::Callers => BudgetLeft::Callers,
                Budget::Until { at, .. } => BudgetLeft::Until(at.since(now)),
                Budget::LastCall { kill_at } => BudgetLeft::LastCall(kill_at.since(now)),
                Budget::Spent => BudgetLeft::Spent,
            },
        }
    }
}

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
            _ => MIN_KILL_DELAY,
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
