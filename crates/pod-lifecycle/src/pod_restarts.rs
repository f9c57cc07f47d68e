//! The restarts of a whole pod (R14): how many there were, and when the one under way may let the pod start.
//!
//! Owns these counts and times. Knows no container; what a restart does is `rules::pod_restart`.

use std::time::Duration;

use pod_spec::Backoff;

use crate::container::restarts::Restarts;
use crate::interface::time::PodTime;

/// The restarts of one pod.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PodRestarts {
    after_failures: Restarts,
    resumes_at: PodTime,
}

impl PodRestarts {
    /// The restarts after failures since the last good run.
    pub(crate) fn count(self) -> u32 {
        self.after_failures.count()
    }

    /// Whether no restart is left.
    pub(crate) fn are_spent(self, limit: u32) -> bool {
        self.after_failures.are_spent(Some(limit))
    }

    /// Before that the pod does not start again.
    pub(crate) fn resumes_at(self) -> PodTime {
        self.resumes_at
    }

    /// A container whose failures restart the pod has exited; `ran` is how long it ran.
    pub(crate) fn exited(&mut self, ran: Duration) {
        self.after_failures.exited(ran);
    }

    /// One begins after a failure. Returns its delay.
    pub(crate) fn begin_after_failure(&mut self, backoff: &Backoff, now: PodTime) -> Duration {
        self.after_failures.counted();
        let delay = self.after_failures.next_delay(backoff);
        self.resumes_at = now + delay;
        delay
    }

    /// One begins that was asked for: it counts for nothing, and has no delay.
    pub(crate) fn begin_on_request(&mut self, now: PodTime) {
        self.resumes_at = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R14: a failure counts and has R4's delays; a request does neither.
    #[test]
    fn r14_failures_are_counted_and_requests_are_not() {
        let now = PodTime::after_epoch(Duration::from_secs(9));
        let (mut restarts, backoff) = (PodRestarts::default(), Backoff::default());
        assert_eq!(restarts.begin_after_failure(&backoff, now), Duration::ZERO);
        assert_eq!(restarts.begin_after_failure(&backoff, now), Duration::from_secs(1));
        assert_eq!((restarts.count(), restarts.resumes_at()), (2, now + Duration::from_secs(1)));
        assert!(restarts.are_spent(2) && !restarts.are_spent(3));
        restarts.begin_on_request(now);
        assert_eq!((restarts.count(), restarts.resumes_at()), (2, now));
        restarts.exited(Duration::from_secs(600));
        assert!(!restarts.are_spent(1));
    }
}
