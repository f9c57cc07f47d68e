//! What podshim knows of a planned container's end when its task is gone: who asked for it, how it ended, whether it counts.
//!
//! CRI deletes a task as soon as it has exited (F6), so the task itself cannot keep this.

use std::time::Duration;

use crate::container::phase::Program;
use crate::interface::exit::Exit;
use crate::interface::time::PodTime;

/// How a caller asked for a container's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Signal,
    Kill,
}

/// A caller's request for a container's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) how: Ask,
    /// Another stop that comes until then may belong to the same stop of the pod (T16).
    pub(crate) fresh_until: PodTime,
}

/// The end of a member's newest task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) real: Exit,
    /// The code that counts for the pod: of a main the one that callers see (J3, J10).
    pub(crate) code: u32,
    /// Until then it is evidence of a stop of the pod, whatever else lives (T12).
    pub(crate) evident_until: PodTime,
    /// Until then its caller may recreate it (T15).
    pub(crate) replace_by: PodTime,
    pub(crate) standing: Standing,
    pub(crate) ran: Program,
    /// The round in which it ended (J11).
    pub(crate) round: u32,
}

/// Whether an end counts (T15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Its caller stopped it alone, and may recreate it.
    Open,
    Counts,
}

/// Who ended a task, for T15.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndedBy {
    /// Its caller, who may recreate it.
    CallerAlone,
    /// Itself, podshim, or a stop of the pod.
    Other,
}

impl Asked {
    pub(crate) fn is_signal(self) -> bool {
        self.how == Ask::Signal
    }

    /// Whether both may belong to the same stop of the pod: at most one window lies between them.
    pub(crate) fn may_belong_with(self, other: Self, window: Duration) -> bool {
        self.fresh_until <= other.fresh_until + window && other.fresh_until <= self.fresh_until + window
    }
}

impl Ended {
    /// The exit of the program.
    pub(crate) fn real(&self) -> Exit {
        self.real
    }

    /// Its code, once it counts (T15).
    pub(crate) fn counted_code(&self) -> Option<u32> {
        (self.standing == Standing::Counts).then_some(self.code)
    }

    /// When it will count, if it does not yet.
    pub(crate) fn open_until(&self) -> Option<PodTime> {
        (self.standing == Standing::Open).then_some(self.replace_by)
    }

    /// Until when its caller may recreate it.
    pub(crate) fn replace_by(&self) -> PodTime {
        self.replace_by
    }

    /// Whether its program ran and exited with 0, and that counts.
    pub(crate) fn is_success(&self) -> bool {
        self.ran == Program::HasRun && self.counted_code() == Some(0)
    }

    pub(crate) fn is_of_round(&self, round: u32) -> bool {
        self.round == round
    }

    /// Its caller's time to recreate it is over (T15).
    pub(crate) fn counts_now(&mut self) {
        self.standing = Standing::Counts;
    }
}
