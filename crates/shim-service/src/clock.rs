//! The clocks: the pod's own time, and the wall time that events, exits and records carry.
//!
//! Owns reading both. `pod-lifecycle` reads no clock: it gets times as arguments.

use std::time::SystemTime;

use pod_lifecycle::{PodTime, WallTime};
use protobuf::well_known_types::timestamp::Timestamp;
use tokio::time::Instant;

/// Go's zero time, which containerd and its clients take for "not yet".
const NO_TIME: i64 = -62_135_596_800;

/// The time of one pod, counted from the start of its shim.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    epoch: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { epoch: Instant::now() }
    }

    pub(crate) fn now(self) -> PodTime {
        PodTime::after_epoch(self.epoch.elapsed())
    }

    /// The instant of that time of the pod. `None` beyond the clock's range: it never comes.
    pub(crate) fn instant(self, at: PodTime) -> Option<Instant> {
        self.epoch.checked_add(at.since_epoch())
    }

    /// Sleeps until the deadline. Without one it ends at once: a `select!` must disable it.
    pub(crate) async fn sleep_until(self, deadline: Option<Instant>) {
        tokio::time::sleep_until(deadline.unwrap_or(self.epoch)).await;
    }
}

#[expect(clippy::disallowed_methods, reason = "here all wall times come from")]
pub(crate) fn system_time() -> SystemTime {
    SystemTime::now()
}

/// The wall time now, for the core.
pub(crate) fn wall_now() -> WallTime {
    wall_time(system_time())
}

/// Milliseconds since 1970.
pub(crate) fn wall_ms() -> i64 {
    i64::try_from(wall_now().0.as_millis()).unwrap_or_default()
}

/// A wall time from the system's.
pub(crate) fn wall_time(at: SystemTime) -> WallTime {
    WallTime(at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default())
}

/// A wall time for a protobuf message. The default wall time means "never".
pub(crate) fn timestamp(at: WallTime) -> Timestamp {
    if at == WallTime::default() {
        return Timestamp { seconds: NO_TIME, ..Timestamp::default() };
    }
    Timestamp {
        // No clock reaches 2^63 seconds.
        seconds: i64::try_from(at.0.as_secs()).unwrap_or(i64::MAX),
        nanos: i32::try_from(at.0.subsec_nanos()).unwrap_or_default(),
        ..Timestamp::default()
    }
}
