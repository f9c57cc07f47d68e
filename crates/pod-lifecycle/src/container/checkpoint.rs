//! A checkpoint under way.

use crate::interface::id::{OpId, RequestId};

/// A checkpoint under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Checkpoint {
    pub(crate) op: OpId,
    pub(crate) request: RequestId,
}
