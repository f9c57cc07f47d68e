//! The cgroup freezer of one container.

use crate::interface::id::{OpId, RequestId};

/// The cgroup freezer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Freezer {
    Thawed,
    /// A pause or resume is under way: for a caller, or a thaw by podshim itself (K17).
    Changing(OpId, Option<RequestId>, FreezerChange),
    Paused,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FreezerChange {
    Pause,
    Resume,
}
