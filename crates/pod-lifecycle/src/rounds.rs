//! The rounds of a pod: what lies between two of its stops (T14, J11), and when its caller last created something (I8).
//!
//! Owns these counts and times. Decides nothing: what follows from them is decided above.

use std::time::Duration;

use crate::interface::time::PodTime;
use crate::member::Creation;

/// What there is of the pod in a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Content {
    #[default]
    Nothing,
    /// It lived when the round began, or its caller has created it since.
    Something,
    /// Everything planned has ended since, whatever was created after that.
    Ended,
}

/// The rounds of one pod.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rounds {
    over: u32,
    content: Content,
    another_until: Option<PodTime>,
    created_at: PodTime,
}

impl Rounds {
    /// How many stops are over (T14).
    pub(crate) fn number(self) -> u32 {
        self.over
    }

    /// T18: whether something lived in this round, and everything planned has ended since.
    pub(crate) fn was_emptied(self) -> bool {
        self.content == Content::Ended
    }

    /// T18: everything planned has ended.
    pub(crate) fn all_have_ended(&mut self) {
        if self.content == Content::Something {
            self.content = Content::Ended;
        }
    }

    /// J11: until then a container that was created again may be the first of another round.
    pub(crate) fn another_until(self) -> Option<PodTime> {
        self.another_until
    }

    /// I8: when the caller last created a container; others may follow.
    pub(crate) fn created_at(self) -> PodTime {
        self.created_at
    }

    /// A caller creates a planned container, and may create others for that long.
    pub(crate) fn create(&mut self, creation: Creation, now: PodTime, wait: Duration) {
        self.created_at = now;
        if self.content == Content::Nothing {
            self.content = Content::Something;
        }
        if creation == Creation::Again {
            self.another_until.get_or_insert(now + wait);
        }
    }

    /// J11: an init of another round has completed: its caller may create the mains only now.
    pub(crate) fn init_completed(&mut self, quiet_until: PodTime) {
        if let Some(until) = &mut self.another_until {
            *until = quiet_until.max(*until);
        }
    }

    /// A main runs: another round has certainly begun (J11).
    pub(crate) fn main_runs(&mut self) {
        self.another_until = None;
    }

    /// A stop is over.
    pub(crate) fn end(&mut self) {
        self.over += 1;
        self.content = Content::Nothing;
    }

    /// T14: something lives as another round begins.
    pub(crate) fn something_lives(&mut self) {
        self.content = Content::Something;
    }

    /// The stop of a complete pod is over: what was created before it is no other round.
    pub(crate) fn end_complete(&mut self) {
        self.another_until = None;
        self.end();
    }
}
