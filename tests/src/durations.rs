//! The durations that tests have in common: how long a wait may take, and how far a measured time may be off. Holds no
//! expectation of any rule.

use std::time::Duration;

/// Ample for anything that takes no time of its own.
pub const SOON: Duration = Duration::from_secs(20);

/// A caller's grace that no test uses up.
pub const AMPLE: Duration = Duration::from_secs(60);

/// How far a duration may be off: the machine may be busy.
pub const TOLERANCE: Duration = Duration::from_secs(1);

/// How late a program may come back that is restarted: its process has to be made anew, on a machine that may be busy.
pub const REMAKING: Duration = Duration::from_secs(4);

/// The longest that a shim's thread may be away from what it serves, on a busy machine and unoptimised (docs/trust.md):
/// containerd gives a State two seconds.
pub const LONGEST_AWAY: Duration = Duration::from_secs(1);

/// That many seconds.
pub const fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// That many milliseconds.
pub const fn milliseconds(count: u64) -> Duration {
    Duration::from_millis(count)
}

/// How many times slower than usual this machine starts programs: `hack/vm.d/e2e` measures it in its machine, everywhere
/// else it is 1. What takes no time of its own may take so many times longer; nothing may come earlier.
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
