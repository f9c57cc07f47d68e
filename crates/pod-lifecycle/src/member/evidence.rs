//! What podshim knows of a planned container's end when its task is gone: who asked for it, how it ended, whether it
//! counts.
//!
//! CRI deletes a task as soon as it has exited (F6), so the task itself cannot keep this. Owns the facts. Decides nothing:
//! which of them are evidence is `questions::evidence`.

use crate::container::phase::Program;
use crate::interface::exit::Exit;
use crate::interface::time::PodTime;

/// How a caller asked for a container's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Signal,
    Kill,
}

/// T18: what a caller saw of a container when it last asked for its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// It was created, and not started.
    Created,
    /// It was started, and runs for its caller whether podshim holds it, runs it or hides its end.
    Running,
}

/// The end of a member's newest task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    real: Exit,
    /// The code that counts for the pod: of a main the one that callers see (J3, J10).
    code: u32,
    /// Until then it is evidence of a stop of the pod, whatever else lives (T12).
    evident_until: PodTime,
    /// Until then its caller may recreate it (T15).
    replace_by: PodTime,
    counting: Counting,
    ran: Program,
    /// The round in which it ended (J11).
    round: u32,
}

/// Whether an end counts (T15).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Counting {
    /// Its caller stopped it alone, and may recreate it.
    Undecided,
    Counts,
}

/// Who ended a task, for T15.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndedBy {
    /// Its caller, who may recreate it.
    Caller,
    /// Itself, or podshim.
    Other,
}

/// Until when an end counts as evidence, and until when the caller may recreate the container.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndTimes {
    /// Until then it is evidence of a stop of the pod, whatever else lives (T12).
    pub(crate) evident_until: PodTime,
    /// Until then its caller may recreate it (T15).
    pub(crate) replace_by: PodTime,
}

impl Ended {
    /// The end of a task in that round. `code` is the one that counts for the pod: of a main the one that callers see
    /// (J3, J10).
    pub(crate) fn new(real: Exit, code: u32, by: EndedBy, ran: Program, round: u32, times: EndTimes) -> Self {
        let counting = match by {
            EndedBy::Caller => Counting::Undecided,
            EndedBy::Other => Counting::Counts,
        };
        let EndTimes { evident_until, replace_by } = times;
        Self { real, code, evident_until, replace_by, counting, ran, round }
    }

    /// T12: whether it is evidence of a stop of the pod, whatever else lives.
    pub(crate) fn is_evident(&self, now: PodTime) -> bool {
        now <= self.evident_until
    }

    /// Until when it is that, `lone-stop-window` after it.
    pub(crate) fn evident_until(&self) -> PodTime {
        self.evident_until
    }

    /// The exit of the program.
    pub(crate) fn real(&self) -> Exit {
        self.real
    }

    /// Its code, once it counts (T15).
    pub(crate) fn counted_code(&self) -> Option<u32> {
        (self.counting == Counting::Counts).then_some(self.code)
    }

    /// When it will count, if it does not yet.
    pub(crate) fn open_until(&self) -> Option<PodTime> {
        (self.counting == Counting::Undecided).then_some(self.replace_by)
    }

    /// Until when its caller may recreate it.
    pub(crate) fn replace_by(&self) -> PodTime {
        self.replace_by
    }

    /// Whether its program ran and exited with 0, and that counts.
    pub(crate) fn is_success(&self) -> bool {
        self.ran == Program::HasRun && self.counted_code() == Some(0)
    }

    /// Whether its program ran and failed, and that counts.
    pub(crate) fn is_failure(&self) -> bool {
        self.ran == Program::HasRun && self.counted_code().is_some_and(|code| code != 0)
    }

    pub(crate) fn is_of_round(&self, round: u32) -> bool {
        self.round == round
    }

    /// Its caller's time to recreate it is over (T15).
    pub(crate) fn counts_now(&mut self) {
        self.counting = Counting::Counts;
    }
}
