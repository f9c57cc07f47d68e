//! The gate of a planned container, over all tasks of its name.
//!
//! Owns that an open gate stays open for the round (U3), and that a task that was let go once does not wait again (S6).
//! Knows no container, and not why a gate opens.

/// The gate of one member.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct MemberGate {
    state: GateState,
    release: Release,
    was_open: WasOpen,
}

/// How far a gate is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum GateState {
    #[default]
    Closed,
    /// The program has been exec'd (U1); its probe has not succeeded yet (U2).
    Started,
    /// U3: until the round is over.
    Open,
}

/// Whether its program was allowed to start in this round: a newer task of the name does not wait again (S6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Release {
    #[default]
    Waiting,
    Released,
}

/// Whether it was ever open in this sandbox (I8).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum WasOpen {
    #[default]
    Never,
    Before,
}

/// Whether the newest task of a name goes on into the next round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NewestTask {
    Lives,
    /// It lives, and is younger than the end of everything in the last round (T18): its gate was another task's.
    IsRecreated,
    IsGone,
}

impl MemberGate {
    pub(crate) fn state(self) -> GateState {
        self.state
    }

    pub(crate) fn is_open(self) -> bool {
        self.state == GateState::Open
    }

    pub(crate) fn was_ever_open(self) -> bool {
        self.was_open == WasOpen::Before
    }

    pub(crate) fn is_released(self) -> bool {
        self.release == Release::Released
    }

    /// The program may start.
    pub(crate) fn release(&mut self) {
        self.release = Release::Released;
    }

    /// U1: the program has been exec'd.
    pub(crate) fn note_executed(&mut self) {
        self.state = self.state.max(GateState::Started);
    }

    /// U1, U2: what waited for it may go on. Returns whether the gate was closed.
    pub(crate) fn open(&mut self) -> bool {
        let was_closed = !self.is_open();
        self.state = GateState::Open;
        self.was_open = WasOpen::Before;
        was_closed
    }

    /// V1, V4: what takes over, or stands by, has to get ready from the start.
    pub(crate) fn close(&mut self) {
        self.state = GateState::Closed;
    }

    /// T14, T18: what has ended waits for its gates again, what lives goes on. A stop that turned out to be no stop of the
    /// pod opens no gate.
    pub(crate) fn end_round(&mut self, newest: NewestTask) {
        (self.state, self.release) = match (newest, self.state) {
            (NewestTask::Lives, GateState::Open) => (GateState::Open, Release::Released),
            (NewestTask::Lives | NewestTask::IsRecreated, _) => (GateState::Closed, Release::Released),
            (NewestTask::IsGone, _) => (GateState::Closed, Release::Waiting),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// U3, T14: open for the round; afterwards only what lives keeps it.
    #[test]
    fn u3_t14_open_for_the_round() {
        let mut gate = MemberGate::default();
        assert!(gate.open() && !gate.open());
        gate.note_executed();
        assert!(gate.is_open());
        gate.end_round(NewestTask::Lives);
        assert!(gate.is_open() && gate.is_released());
        gate.end_round(NewestTask::IsGone);
        assert!(!gate.is_open() && !gate.is_released() && gate.was_ever_open());
    }

    /// U1: an exec'd program's gate is closed again at the end of a round, as its probe starts again.
    #[test]
    fn u1_an_unready_gate_starts_again() {
        let mut gate = MemberGate::default();
        gate.note_executed();
        assert_eq!(gate.state(), GateState::Started);
        gate.end_round(NewestTask::Lives);
        assert_eq!(gate.state(), GateState::Closed);
    }

    /// S6: what was released once in a round does not wait again in it.
    #[test]
    fn s6_released_for_the_round() {
        let mut gate = MemberGate::default();
        gate.release();
        assert!(gate.is_released() && !gate.is_open());
        gate.end_round(NewestTask::IsGone);
        assert!(!gate.is_released());
    }
}
