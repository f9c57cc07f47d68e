//! When the shim may end: after containerd's Shutdown, after an ordered stop, or when no caller comes.
//!
//! Owns how long callers are waited for. Decides nothing of whether the pod is empty or has ended, which is `pod-lifecycle`'s.

use std::time::Duration;

use pod_lifecycle::Pod;
use tokio::time::Instant;

/// How long an ordered stop waits for the deletes: if containerd runs, it deletes within milliseconds.
const TIME_TO_DELETE: Duration = Duration::from_secs(2);
/// How long an empty shim waits. Create follows `start` at once, and Shutdown the last Delete. If containerd was killed in
/// between, or its Delete timed out, neither comes (traps 12, 15).
const FORGOTTEN_AFTER: Duration = Duration::from_secs(120);

/// Whether the shim may end.
#[derive(Debug)]
pub(crate) struct Lifetime(EndCondition);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndCondition {
    /// No caller has asked the shim to end.
    Forgotten {
        /// When it ends all the same, while there is no container.
        by: Option<Instant>,
    },
    /// When the deletes under way have ended.
    Empty,
    /// When an ordered stop has ended every container, and containerd has had time to delete them.
    Final {
        /// Until when the deletes are waited for, once all containers have ended.
        by: Option<Instant>,
    },
    Now,
}

impl Lifetime {
    pub(crate) fn new() -> Self {
        Self(EndCondition::Forgotten { by: None })
    }

    /// A caller creates a container: an earlier Shutdown no longer holds.
    pub(crate) fn create_requested(&mut self) {
        if matches!(self.0, EndCondition::Forgotten { .. } | EndCondition::Empty) {
            self.0 = EndCondition::Forgotten { by: None };
        }
    }

    /// containerd sends Shutdown after every Delete; only the one after the last Delete counts (CONTRACT §1.8).
    pub(crate) fn shutdown_requested(&mut self, pod: &Pod) {
        if pod.is_empty() {
            self.0 = EndCondition::Now;
        } else if pod.is_leaving() && matches!(self.0, EndCondition::Forgotten { .. }) {
            self.0 = EndCondition::Empty;
        }
    }

    /// A signal to the shim has begun an ordered stop.
    pub(crate) fn stop_signalled(&mut self) {
        self.0 = EndCondition::Final { by: None };
    }

    /// When the shim ends if no caller comes until then.
    pub(crate) fn deadline(&mut self, pod: &Pod) -> Option<Instant> {
        let (is_idle, by, wait) = match &mut self.0 {
            EndCondition::Forgotten { by } => (pod.is_empty(), by, FORGOTTEN_AFTER),
            EndCondition::Final { by } => (pod.is_final(), by, TIME_TO_DELETE),
            EndCondition::Empty | EndCondition::Now => return None,
        };
        if is_idle {
            by.get_or_insert_with(|| Instant::now() + wait);
        } else {
            *by = None;
        }
        *by
    }

    /// N1: only an ordered stop ends a shim with exits that no Delete has fetched; `delete` has them in their bundles then.
    pub(crate) fn is_over(&self, pod: &Pod) -> bool {
        let has_passed = |by: Option<Instant>| by.is_some_and(|by| Instant::now() >= by);
        match self.0 {
            EndCondition::Forgotten { by } => pod.is_empty() && has_passed(by),
            EndCondition::Empty => pod.is_empty(),
            // A shim whose first Create never came is empty too (trap 15).
            EndCondition::Final { by } => pod.is_empty() || has_passed(by),
            EndCondition::Now => true,
        }
    }
}
