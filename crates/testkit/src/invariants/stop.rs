//! What is known of a stop of the pod, and of what a caller asks for: types and their own questions only.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pod_lifecycle::PodTime;

/// K11: the length of a stop that an unannounced SIGKILL begins.
pub(super) const ZERO_GRACE: Duration = Duration::from_millis(1500);

/// A stop under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stop {
    pub(super) cause: Cause,
    pub(super) since: PodTime,
    /// T5: when its budget ends, and when SIGKILL comes; `None` while the caller counts.
    pub(super) budget: Option<Budget>,
    /// T19, T20: the kubelet's figure, and the time that the pod's figures are meant for, as they were when it began.
    pub(super) figure: Option<Duration>,
    pub(super) usual: Duration,
    /// T19: since when its caller counts; and where that is not certain, as one of a pair may be its standby again (V4), the earliest such time.
    pub(super) asked_since: PodTime,
    pub(super) may_be_asked_since: PodTime,
    /// K11: whether it has been one of 1.5 s.
    pub(super) had_zero_grace: bool,
}

/// T5, T6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Budget {
    /// When that time was given.
    pub(super) since: PodTime,
    pub(super) ends: PodTime,
    pub(super) kills: PodTime,
}

/// How many steps follow each container that the plan names, and how many the mains (T19).
#[derive(Clone, Debug, Default)]
pub(super) struct Steps {
    pub(super) after: BTreeMap<String, u32>,
    pub(super) mains: u32,
}

/// Why it began (T12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cause {
    Caller,
    Sandbox,
    Requested,
    ZeroGrace,
    Completed,
    Failed,
    Fatal,
}

impl Stop {
    pub(super) fn is_for_good(self) -> bool {
        matches!(self.cause, Cause::Sandbox | Cause::Requested)
    }

    pub(super) fn is_own(self) -> bool {
        self.cause != Cause::Caller
    }

    /// T14: whether the pod goes on after it.
    pub(super) fn goes_on(self) -> bool {
        !self.is_for_good() && self.cause != Cause::Completed
    }
}

/// That a caller asked for a member's end, since its newest container was created and in this round (T12).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Asked {
    /// Whether one of its signals was a stop signal.
    pub(super) by_signal: bool,
    /// When it asked first.
    pub(super) at: PodTime,
}

/// A caller's stop in the making: the stops of containers, each within `lone-stop-window` of the one before.
#[derive(Clone, Debug)]
pub(super) struct Making {
    pub(super) asked: BTreeSet<String>,
    /// Until then another stop may belong to it.
    pub(super) until: PodTime,
}

/// The end of a member's newest container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) at: PodTime,
    /// What counts for the pod: of a main what callers see.
    pub(super) code: u32,
    /// T15: from then on it counts.
    pub(super) counts_from: PodTime,
    pub(super) ran: bool,
    pub(super) round: u32,
}
