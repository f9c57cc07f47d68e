//! How a process ended, and the exit codes that podshim reports itself.
//!
//! Decides nothing: which code a caller sees is `questions::exit_codes`.

use crate::interface::time::WallTime;

/// How a process ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exit {
    /// 0 to 255; 128 + signal for a process that a signal ended.
    pub code: u32,
    /// When it was seen.
    pub at: WallTime,
}

/// The exit code of a process that a signal ended, as shells and containerd report it.
pub(crate) fn code_of_signal(signal: u8) -> u32 {
    128 + u32::from(signal)
}

/// What containerd reports for a container that could not be started.
pub(crate) const START_FAILED: u32 = 128;

/// The exit code of a program that SIGKILL ended.
pub(crate) const KILLED: u32 = 137;

/// The exit code of a container that podshim ends before its program ran (J9).
pub(crate) const NEVER_RAN: u32 = 125;
