//! The place of a planned container in its pair.
//!
//! Owns which of the two it is (V1, V4), and whether a caller has started it in this round (V3). Knows neither the other one nor
//! any container.

/// The place of one member in its pair. A member without a pair is active.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PairPlace {
    role: PairRole,
    caller_start: CallerStart,
}

/// Which of the two it is (V1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum PairRole {
    #[default]
    Active,
    Standby,
}

/// Whether a caller has started a task of a member's name in this round (V3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum CallerStart {
    #[default]
    Never,
    Before,
}

impl PairPlace {
    /// V1: the second one's, which begins as the standby.
    pub(crate) fn standby() -> Self {
        Self { role: PairRole::Standby, ..Self::default() }
    }

    /// V1: whether it is the active one.
    pub(crate) fn is_active(self) -> bool {
        self.role == PairRole::Active
    }

    /// V3: a caller starts a task of its name. Returns whether one was started in this round before.
    pub(crate) fn caller_starts(&mut self) -> CallerStart {
        std::mem::replace(&mut self.caller_start, CallerStart::Before)
    }

    /// V4: it is the active one from now on.
    pub(crate) fn take_over(&mut self) {
        self.role = PairRole::Active;
    }

    /// V4: it is the standby from now on.
    pub(crate) fn retire(&mut self) {
        self.role = PairRole::Standby;
    }

    /// T14: a stop is over.
    pub(crate) fn end_round(&mut self) {
        self.caller_start = CallerStart::Never;
    }
}
