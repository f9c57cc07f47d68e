//! The agent's clocks: the only file that reads any.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::story::Now;

/// Holds may be older than the agent.
const BEGIN: Duration = Duration::from_secs(10 * 365 * 86_400);

/// Reads the time.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// One that begins now.
    #[must_use]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    /// The time.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "the driver is where clocks are read")]
    pub fn now(self) -> Now {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Now { run: BEGIN + self.0.elapsed(), wall_ms: i64::try_from(since.as_millis()).unwrap_or(i64::MAX) }
    }

    /// Waits until then.
    pub async fn sleep_until(self, run: Duration) {
        tokio::time::sleep_until(self.0 + run.saturating_sub(BEGIN)).await;
    }
}
