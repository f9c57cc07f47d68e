//! What an attempt has found.

use std::fmt;
use std::time::Duration;

/// Result of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeResult {
    /// The container answered.
    Success,
    /// It did not; the text gives the reason, in words for people.
    Failure(String),
}

impl fmt::Display for ProbeResult {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Success => formatter.write_str("succeeded"),
            Self::Failure(reason) => formatter.write_str(reason),
        }
    }
}

pub(super) fn timed_out(timeout: Duration) -> String {
    format!("timed out after {timeout:?}")
}
