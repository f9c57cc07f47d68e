//! The cgroup freezer of one container.
//!
//! Owns whether it is frozen, and the change under way. A pause that is under way at an exit would freeze the next process:
//! its cgroup has the same name. Knows neither the container nor the pod.

use crate::interface::id::{OpId, RequestId};

/// The cgroup freezer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Freezer(FreezerState);

#[derive(Clone, Copy, Debug, Default)]
enum FreezerState {
    #[default]
    Thawed,
    Changing(OpId, Change),
    Paused,
}

/// A pause or resume under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    /// The caller's request; `None` for a thaw by podshim itself (K17), and when its answer has been given.
    pub(crate) request: Option<RequestId>,
    pub(crate) kind: FreezerChange,
}

/// What a change is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FreezerChange {
    Pause,
    Resume,
}

impl Freezer {
    pub(crate) fn is_paused(self) -> bool {
        matches!(self.0, FreezerState::Paused)
    }

    pub(crate) fn is_changing(self) -> bool {
        matches!(self.0, FreezerState::Changing(..))
    }

    /// Whether callers see the container as paused: until a resume has succeeded.
    pub(crate) fn shows_paused(self) -> bool {
        matches!(
            self.0,
            FreezerState::Paused | FreezerState::Changing(_, Change { kind: FreezerChange::Resume, .. })
        )
    }

    pub(crate) fn waits_for(self, op: OpId) -> bool {
        matches!(self.0, FreezerState::Changing(waiting, _) if waiting == op)
    }

    /// A change begins, for a caller or for a thaw by podshim itself.
    pub(crate) fn begin(&mut self, op: OpId, request: Option<RequestId>, kind: FreezerChange) {
        self.0 = FreezerState::Changing(op, Change { request, kind });
    }

    /// The change under way, if one is.
    pub(crate) fn change(self) -> Option<Change> {
        match self.0 {
            FreezerState::Changing(_, change) => Some(change),
            FreezerState::Thawed | FreezerState::Paused => None,
        }
    }

    /// The change has succeeded.
    pub(crate) fn changed(&mut self, kind: FreezerChange) {
        self.0 = match kind {
            FreezerChange::Pause => FreezerState::Paused,
            FreezerChange::Resume => FreezerState::Thawed,
        };
    }

    /// The change has failed.
    pub(crate) fn failed(&mut self, kind: FreezerChange) {
        self.0 = match kind {
            FreezerChange::Pause => FreezerState::Thawed,
            FreezerChange::Resume => FreezerState::Paused,
        };
    }

    /// Its process is gone. Returns the request that a change under way was for, which gets its answer now; the change
    /// itself still has to end.
    pub(crate) fn exited(&mut self) -> Option<(RequestId, FreezerChange)> {
        match &mut self.0 {
            FreezerState::Changing(_, change) => change.request.take().map(|request| (request, change.kind)),
            FreezerState::Thawed | FreezerState::Paused => {
                self.0 = FreezerState::Thawed;
                None
            }
        }
    }

    /// There is a new process, or nothing is left to freeze.
    pub(crate) fn reset(&mut self) {
        self.0 = FreezerState::Thawed;
    }
}
