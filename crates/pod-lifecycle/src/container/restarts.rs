//! How long to wait before a restart, and how many restarts there are (R4).
//!
//! Owns these counts. Knows neither the clock nor the container.

use std::time::Duration;

use pod_spec::Backoff;

/// After a run this long the counts start from zero again.
const GOOD_RUN: Duration = Duration::from_secs(600);

/// The restarts of one container so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Restarts {
    /// Restarts of the program: what `limit` counts.
    count: u32,
    /// Delays so far. There are more delays than restarts if a held container had to be recreated (R7).
    delays: u32,
    /// All restarts of the program, for operators: no rule reads it, and it never falls.
    total: u32,
}

impl Restarts {
    /// Notes an exit of the program; `ran` is how long it ran.
    pub(crate) fn exited(&mut self, ran: Duration) {
        if ran >= GOOD_RUN {
            *self = Self { total: self.total, ..Self::default() };
        }
    }

    /// Whether no restart is left.
    pub(crate) fn are_spent(self, limit: Option<u32>) -> bool {
        limit.is_some_and(|limit| self.count >= limit)
    }

    /// The restarts since the last good run.
    pub(crate) fn count(self) -> u32 {
        self.count
    }

    /// All restarts of this container.
    pub(crate) fn total(self) -> u32 {
        self.total
    }

    /// Notes that the program is to be restarted.
    pub(crate) fn counted(&mut self) {
        self.count = self.count.saturating_add(1);
        self.total = self.total.saturating_add(1);
    }

    /// R4: the delay before the next process: `first`, then `base` doubled each time, at most `max`.
    pub(crate) fn next_delay(&mut self, backoff: &Backoff) -> Duration {
        let delay = match self.delays {
            0 => backoff.first,
            n => 1_u32
                .checked_shl(n - 1)
                .and_then(|factor| backoff.base.checked_mul(factor))
                .map_or(backoff.max, |delay| delay.min(backoff.max)),
        };
        self.delays = self.delays.saturating_add(1);
        delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(restarts: &mut Restarts, backoff: &Backoff, count: usize) -> Vec<u64> {
        (0..count).map(|_| restarts.next_delay(backoff).as_secs()).collect()
    }

    /// R4: the first restart at once, then delays that double up to a minute, and from the start again after a good
    /// run.
    #[test]
    fn r4_delays() {
        let (mut restarts, usual) = (Restarts::default(), Backoff::default());
        assert_eq!(seconds(&mut restarts, &usual, 9), [0, 1, 2, 4, 8, 16, 32, 60, 60]);
        restarts.exited(GOOD_RUN);
        assert_eq!(seconds(&mut restarts, &usual, 2), [0, 1]);
    }

    /// R4: whatever the pod's author wrote, and however often, the delay is between `first` and `max`.
    #[test]
    fn r4_delays_are_bounded() {
        let second = Duration::from_secs(1);
        let own = Backoff { first: 5 * second, base: 3 * second, max: 10 * second };
        assert_eq!(seconds(&mut Restarts::default(), &own, 5), [5, 3, 6, 10, 10]);
        let year = Backoff { first: Duration::ZERO, base: 31_536_000 * second, max: 31_536_000 * second };
        assert_eq!(seconds(&mut Restarts::default(), &year, 70).last(), Some(&31_536_000));
    }

    /// R4: the limit counts restarts since the last good run; recreations of a held container do not count (R7).
    #[test]
    fn r4_the_limit() {
        let mut restarts = Restarts::default();
        assert!(!restarts.are_spent(None));
        assert!(restarts.are_spent(Some(0)));
        restarts.next_delay(&Backoff::default());
        assert!(!restarts.are_spent(Some(1)));
        restarts.counted();
        assert!(restarts.are_spent(Some(1)));
        restarts.exited(GOOD_RUN);
        assert!(!restarts.are_spent(Some(1)));
    }

    /// N7: a sidecar that dies each eleven minutes never reaches R12's count; the total shows it.
    #[test]
    fn r4_found_n7_the_total_never_falls() {
        let mut restarts = Restarts::default();
        for number in 1..=5 {
            restarts.exited(Duration::from_secs(660));
            restarts.counted();
            assert_eq!((restarts.count(), restarts.total()), (1, number));
        }
        restarts.exited(GOOD_RUN);
        assert_eq!((restarts.count(), restarts.total()), (0, 5));
    }
}
