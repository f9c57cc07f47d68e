//! A hold: since when, for what, and when its next line is due (U7, U13).
//!
//! Owns the times of the lines. Knows neither the container nor the words for what it waits for: those are
//! `questions::holds`.

use std::time::Duration;

use crate::interface::time::PodTime;

/// A hold that is shorter, or a reason that lasts shorter, is not written (U7).
const LINE_AFTER: Duration = Duration::from_secs(1);

/// The reason is written again when a hold has lasted this long (U13).
const REPEATS: [Duration; 3] = [Duration::from_secs(60), Duration::from_secs(600), Duration::from_secs(3600)];

/// A hold that may last for ever gets a line about that after this long (U13).
const DOUBT_AFTER: Duration = Duration::from_secs(10);

/// Whether a hold may last for ever, because its caller waits for the container too (S8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doubt {
    No,
    /// The line about it is due then.
    Due(PodTime),
    Written,
}

/// A hold (U7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hold {
    since: PodTime,
    waits_for: Option<Wait>,
    /// When the next line is due.
    line_due: Option<PodTime>,
    /// How many of [`REPEATS`] are over.
    repeats: usize,
    doubt: Doubt,
}

/// What a held container waits for. A change of this is worth a line in its log (U13).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// T11: the end of the pod's stop.
    EndOfStop,
    /// R14: the end of the pod's stop, after which it starts.
    PodRestart,
    /// V1: its turn; it is the standby of that member.
    StandbyOf(usize),
    /// A member that has not done yet what the container waits for.
    Member(usize, Obstacle),
}

/// Why a member has not done yet what others wait for. What it does meanwhile (its restarts, what its probe reports)
/// does not change this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// U10.
    NotCreated,
    /// Its Create or Start failed.
    CouldNotStart,
    /// T15: its caller stopped it.
    StoppedByCaller,
    /// It has ended, and its caller has seen that.
    Ended,
    NotStarted,
    Held,
    /// podshim is at work on it: it starts, runs or restarts it, or probes its gate.
    AtWork,
}

impl Hold {
    pub(crate) fn new(now: PodTime) -> Self {
        Self { since: now, waits_for: None, line_due: None, repeats: 0, doubt: Doubt::No }
    }

    /// U6 counts from here.
    pub(crate) fn since(&self) -> PodTime {
        self.since
    }

    /// T14: the hold counts from now on, as only now it waits for its gates.
    pub(crate) fn counts_from(&mut self, now: PodTime) {
        self.since = now;
    }

    /// When a line is due, of either kind.
    pub(crate) fn next_line_due(&self) -> Option<PodTime> {
        let doubt = match self.doubt {
            Doubt::Due(at) => Some(at),
            Doubt::No | Doubt::Written => None,
        };
        self.line_due.into_iter().chain(doubt).min()
    }

    /// It may last for ever.
    pub(crate) fn may_last(&mut self) {
        if self.doubt == Doubt::No {
            self.doubt = Doubt::Due(self.since + DOUBT_AFTER);
        }
    }

    /// It ends when what it waits for has done its work.
    pub(crate) fn will_end(&mut self) {
        if let Doubt::Due(_) = self.doubt {
            self.doubt = Doubt::No;
        }
    }

    /// Whether the line about its doubt is due; it is written once.
    pub(crate) fn take_doubt(&mut self, now: PodTime) -> bool {
        let is_due = matches!(self.doubt, Doubt::Due(at) if now >= at);
        if is_due {
            self.doubt = Doubt::Written;
        }
        is_due
    }

    pub(crate) fn line_is_due(&self, now: PodTime) -> bool {
        self.line_due.is_some_and(|at| now >= at)
    }

    /// Notes what it waits for; a change is written once it has lasted. Returns whether it is a change.
    pub(crate) fn waits_for(&mut self, wait: Option<Wait>, now: PodTime) -> bool {
        if self.waits_for == wait {
            return false;
        }
        self.waits_for = wait;
        self.line_due = wait.map(|_| now + LINE_AFTER);
        true
    }

    /// A line was written.
    pub(crate) fn written(&mut self, now: PodTime) {
        while REPEATS.get(self.repeats).is_some_and(|after| self.since + *after <= now) {
            self.repeats += 1;
        }
        self.line_due = REPEATS.get(self.repeats).map(|after| self.since + *after);
    }
}
