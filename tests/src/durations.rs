//! Durations that tests share: how long a wait may take, and how far a measured time may be off. Holds no figure of any
//! rule.

use std::time::Duration;

/// Limit of a wait for something that has no duration of its own.
pub const SOON: Duration = Duration::from_secs(20);

/// A caller's grace period that is longer than any stop in a test.
pub const AMPLE: Duration = Duration::from_secs(60);

/// How far a measured duration may be off: the machine may be busy.
pub const TOLERANCE: Duration = Duration::from_secs(1);

/// How much longer than its delay a restart may take: the process is recreated, on a machine that may be busy.
pub const REMAKING: Duration = Duration::from_secs(4);

/// The longest time that a shim's thread may serve nothing, on a busy machine and unoptimised (docs/trust.md):
/// containerd waits two seconds for a State.
pub const LONGEST_AWAY: Duration = Duration::from_secs(1);

/// That many seconds.
pub const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// That many milliseconds.
pub const fn milliseconds(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// How many times slower than usual this machine starts programs: `hack/vm.d/e2e` measures it in its machine,
/// everywhere else it is 1. Limits of waits are multiplied by it; nothing may come earlier.
#[must_use]
pub fn pace() -> u32 {
    std::env::var("PODSHIM_PACE").ok().and_then(|pace| pace.parse().ok()).unwrap_or(1)
}

/// Whether something took no longer than `limit` (times [`pace`]).
#[must_use]
pub fn at_most(found: Duration, limit: Duration) -> bool {
    found <= limit * pace()
}

/// Whether something took as long as expected, give or take `tolerance` (too late by it times [`pace`]).
#[must_use]
pub fn near(found: Duration, expected: Duration, tolerance: Duration) -> bool {
    found + tolerance >= expected && at_most(found.saturating_sub(expected), tolerance)
}
