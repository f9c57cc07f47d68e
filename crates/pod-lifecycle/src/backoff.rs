//! How long to wait before a restart (R4): a pure function of the restarts so far.

use std::time::Duration;

const BASE: Duration = Duration::from_secs(1);
const MAX: Duration = Duration::from_secs(60);
/// A run this long was a good one: the next exit starts the count anew.
const GOOD_RUN: Duration = Duration::from_secs(600);

/// The restarts of one container so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Backoff {
    restarts: u32,
}

impl Backoff {
    /// The delay before the next restart: at once, then 1, 2, 4, ... seconds, at most a minute. `ran` is how
    /// long the program ran.
    pub(crate) fn next_delay(&mut self, ran: Duration) -> Duration {
        if ran >= GOOD_RUN {
            self.restarts = 0;
        }
        let delay = match self.restarts {
            0 => Duration::ZERO,
            // 2^6 s is already over the maximum.
            n => MAX.min(BASE * 2_u32.pow((n - 1).min(6))),
        };
        self.restarts = self.restarts.saturating_add(1);
        delay
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R4: the first restart at once, then doubling up to a minute, and anew after a good run.
    #[test]
    fn r4_delays() {
        let mut backoff = Backoff::default();
        let seconds: Vec<u64> = (0..9).map(|_| backoff.next_delay(Duration::ZERO).as_secs()).collect();
        assert_eq!(seconds, [0, 1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(backoff.next_delay(GOOD_RUN), Duration::ZERO);
        assert_eq!(backoff.next_delay(Duration::ZERO), BASE);
    }
}
