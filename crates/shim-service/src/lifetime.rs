//! When the shim may end: after containerd's Shutdown, after an ordered stop, or when no caller comes.
//!
//! Owns the waits for callers. Whether the pod is empty or ended is `pod-lifecycle`'s to say.

use std::time::Duration;

use pod_lifecycle::Pod;
use tokio::time::Instant;

/// containerd deletes what has ended within milliseconds, if it runs.
const TIME_TO_DELETE: Duration = Duration::from_secs(2);
/// Create follows `start` at once, and Shutdown the last Delete. Where containerd was killed or failed in between, or its time
/// for the Delete was over with the answer, neither ever comes (traps 12, 15).
const FORGOTTEN_AFTER: Duration = Duration::from_secs(120);

/// Whether the shim may end.
#[derive(Debug)]
pub(crate) struct Lifetime(Until);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Until {
    /// No caller has asked for the end.
    Forgotten {
        /// When to end without being asked, if there is no container.
        by: Option<Instant>,
    },
    /// As soon as the deletes under way have ended.
    Empty,
    /// When the stop that a signal began has ended every container, and containerd had time to delete them.
    Final {
        /// How long their deletes are waited for, once all have ended.
        by: Option<Instant>,
    },
    Now,
}

impl Lifetime {
    pub(crate) fn new() -> Self {
        Self(Until::Forgotten { by: None })
    }

    /// A caller creates a container: a Shutdown that waited for the last Delete no longer holds.
    pub(crate) fn create_requested(&mut self) {
        if matches!(self.0, Until::Forgotten { .. } | Until::Empty) {
            self.0 = Until::Forgotten { by: None };
        }
    }

    /// containerd sends Shutdown after every Delete; only the one after the last means it (CONTRACT §1.8).
    pub(crate) fn shutdown_requested(&mut self, pod: &Pod) {
        if pod.is_empty() {
            self.0 = Until::Now;
        } else if pod.is_leaving() && matches!(self.0, Until::Forgotten { .. }) {
            self.0 = Until::Empty;
        }
    }

    /// A signal to the shim stops the pod in order.
    pub(crate) fn stop_signalled(&mut self) {
        self.0 = Until::Final { by: None };
    }

    /// When to end if no caller comes: to create or to shut down, or after an ordered stop to delete the remains.
    pub(crate) fn deadline(&mut self, pod: &Pod) -> Option<Instant> {
        let (is_idle, by, wait) = match &mut self.0 {
            Until::Forgotten { by } => (pod.is_empty(), by, FORGOTTEN_AFTER),
            Until::Final { by } => (pod.is_final(), by, TIME_TO_DELETE),
            Until::Empty | Until::Now => return None,
        };
        if is_idle {
            by.get_or_insert_with(|| Instant::now() + wait);
        } else {
            *by = None;
        }
        *by
    }

    pub(crate) fn is_over(&self, pod: &Pod) -> bool {
        let has_passed = |by: Option<Instant>| by.is_some_and(|by| Instant::now() >= by);
        match self.0 {
            Until::Forgotten { by } => pod.is_empty() && has_passed(by),
            Until::Empty => pod.is_empty(),
            // Empty: also trap 15, a shim whose first Create never came.
            Until::Final { by } => pod.is_empty() || has_passed(by),
            Until::Now => true,
        }
    }
}
