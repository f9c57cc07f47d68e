//! A standby that is taking over from its partner (V4).

use crate::interface::id::RequestId;
use crate::interface::time::PodTime;

/// A standby that is taking over.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TakeOver {
    /// The request for the switch, if there was one (V3).
    pub(crate) request: Option<RequestId>,
    pub(crate) stage: TakeoverStage,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TakeoverStage {
    /// Its gate must open.
    Gate,
    /// Its migrate hook runs, until `until` at the latest.
    Migrate { until: PodTime },
    /// It is the active one now; its partner is ending.
    Retire,
}
