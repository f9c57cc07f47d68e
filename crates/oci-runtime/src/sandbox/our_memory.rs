//! Children in the shim's memory.
//!
//! Owns what the shim keeps from them, and restores behind them. Never waits for one.

use std::{ffi::c_int, io};

use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};

/// Calls `clone`, which makes a child in this memory and returns its pid when it has left it, by execve or exit; or -1.
///
/// # Errors
/// The kernel's.
pub(super) fn with_child(clone: impl FnOnce() -> c_int) -> io::Result<()> {
    let mut before = SigSet::empty();
    // A handler of the shim must not run in the child.
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), Some(&mut before))?;
    // SAFETY: asks a number of this process.
    let dumpable = unsafe { libc::prctl(libc::PR_GET_DUMPABLE) };
    let result = if clone() < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
    // The kernel has made this memory not dumpable when the child in it became another user or changed its rights.
    // SAFETY: sets a flag of this process to what it was.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, dumpable) };
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&before), None)?;
    result
}
