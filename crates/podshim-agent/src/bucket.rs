//! A token bucket. Knows no clock: the time is an argument.

use std::time::Duration;

/// So many at once, and one more after each interval.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    every: Duration,
    burst: Duration,
    /// Up to when the tokens that were taken last.
    spent_until: Duration,
}

impl Bucket {
    /// A full one.
    #[must_use]
    pub const fn new(burst: u32, every: Duration) -> Self {
        Self { every, burst: every.saturating_mul(burst), spent_until: Duration::ZERO }
    }

    /// Takes a token, if there is one.
    pub fn take(&mut self, now: Duration) -> bool {
        let is_there = self.next(now) <= now;
        if is_there {
            self.spent_until = self.spent_until.max(now) + self.every;
        }
        is_there
    }

    /// When the next token is there.
    #[must_use]
    pub fn next(&self, now: Duration) -> Duration {
        (self.spent_until.max(now) + self.every).saturating_sub(self.burst).max(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_and_then_one_after_each_interval() {
        let second = Duration::from_secs(1);
        let mut bucket = Bucket::new(3, 10 * second);
        let taken = |bucket: &mut Bucket, at: u32| (0..5).filter(|_| bucket.take(at * second)).count();
        assert_eq!(taken(&mut bucket, 0), 3);
        assert_eq!(bucket.next(Duration::ZERO), 10 * second);
        assert_eq!([9, 10, 11, 20].map(|at| taken(&mut bucket, at)), [0, 1, 0, 1]);
        assert_eq!(taken(&mut bucket, 1000), 3, "no more than the burst, however long it waits");
    }
}
