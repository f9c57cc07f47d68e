//! Time as a value. Never reads a clock: the driver passes the time in.

use std::fmt;
use std::ops::Add;
use std::time::Duration;

/// A moment of the pod's life, as the monotonic time since the pod's epoch (the shim's start).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PodTime(Duration);

impl PodTime {
    /// The pod's epoch.
    pub const ZERO: Self = Self(Duration::ZERO);

    /// The moment that long after the pod's epoch.
    pub const fn after_epoch(elapsed: Duration) -> Self {
        Self(elapsed)
    }

    /// Time since the pod's epoch.
    pub const fn since_epoch(self) -> Duration {
        self.0
    }

    /// Time since an earlier moment; zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for PodTime {
    type Output = Self;
    fn add(self, rhs: Duration) -> Self {
        Self(self.0.saturating_add(rhs))
    }
}

impl fmt::Display for PodTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0.as_secs(), self.0.subsec_millis())
    }
}

/// A wall-clock moment as time since the Unix epoch. The core only passes it on from exits to callers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WallTime(pub Duration);

/// A duration in words: whole minutes and seconds, below a second milliseconds.
pub(crate) fn show_duration(duration: Duration) -> String {
    let (seconds, millis) = (duration.as_secs(), duration.subsec_millis());
    match (seconds / 60, seconds % 60, millis) {
        (0, seconds, 0) => format!("{seconds}s"),
        (0, 0, millis) => format!("{millis}ms"),
        (0, ..) => format!("{}ms", duration.as_millis()),
        (minutes, 0, _) => format!("{minutes}m"),
        (minutes, seconds, _) => format!("{minutes}m{seconds}s"),
    }
}
