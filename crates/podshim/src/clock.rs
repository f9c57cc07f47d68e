//! The time of the command. Owns the one place where it is read.

use std::time::SystemTime;

/// Milliseconds since 1970.
#[expect(clippy::disallowed_methods, reason = "the command is where its clock is read")]
pub fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or_default()
}
