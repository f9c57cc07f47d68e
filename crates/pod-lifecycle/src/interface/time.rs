//! Time as a value: the core never reads a clock; its driver passes the time in.

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
