//! A standby that is taking over from its partner (V4).
//!
//! Owns how far that is, and the request that waits for it. Knows neither container.

use crate::interface::id::RequestId;
use crate::interface::time::PodTime;

/// A container's takeover, if one is under way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Takeover(Option<(TakeoverStage, Option<RequestId>)>);

/// How far a takeover is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TakeoverStage {
    /// Its gate must open.
    Gate,
    /// Its migrate hook runs, until `until` at the latest.
    Migrate { until: PodTime },
    /// It is the active one now; its partner is ending.
    Retire,
}

impl Takeover {
    /// How far it is; `None` if none is under way.
    pub(crate) fn stage(self) -> Option<TakeoverStage> {
        self.0.map(|(stage, _)| stage)
    }

    pub(crate) fn is_under_way(self) -> bool {
        self.0.is_some()
    }

    /// Whether it can still fail: its partner has not been asked to end.
    pub(crate) fn may_fail(self) -> bool {
        self.stage().is_some_and(|stage| stage != TakeoverStage::Retire)
    }

    /// V5: until when its migrate hook may run.
    pub(crate) fn deadline(self) -> Option<PodTime> {
        match self.stage()? {
            TakeoverStage::Migrate { until } => Some(until),
            TakeoverStage::Gate | TakeoverStage::Retire => None,
        }
    }

    /// V3: it begins, for an operator's request or for a caller that started the standby again.
    pub(crate) fn begin(&mut self, request: Option<RequestId>) {
        self.0 = Some((TakeoverStage::Gate, request));
    }

    /// V4: its gate is open; the migrate hook runs.
    pub(crate) fn migrate(&mut self, until: PodTime) {
        self.go_on(TakeoverStage::Migrate { until });
    }

    /// V4: it is the active one; its partner ends.
    pub(crate) fn retire_partner(&mut self) {
        self.go_on(TakeoverStage::Retire);
    }

    fn go_on(&mut self, next: TakeoverStage) {
        if let Some((stage, _)) = &mut self.0 {
            *stage = next;
        }
    }

    /// It is over. Returns the request that waits for it.
    pub(crate) fn end(&mut self) -> Option<RequestId> {
        self.0.take().and_then(|(_, request)| request)
    }
}
