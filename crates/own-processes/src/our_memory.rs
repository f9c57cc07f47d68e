//! Children in the shim's memory, and threads with a user's rights in it.
//!
//! Owns what the shim keeps from them, what it keeps from others meanwhile, and restores behind them. Never waits for one.

use std::ffi::c_int;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};

/// Calls `clone`, which makes a child in this memory and returns its pid when it has left it, by execve or exit; or -1.
///
/// # Errors
/// The kernel's.
pub(super) fn with_child(closed: Closed, clone: impl FnOnce() -> c_int) -> io::Result<()> {
    let mut before = SigSet::empty();
    // A handler of the shim must not run in the child.
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), Some(&mut before))?;
    let result = if clone() < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
    drop(closed);
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&before), None)?;
    result
}

/// Keeps this memory closed to other processes while something with fewer rights than the shim is in it. A child that has dropped
/// its capabilities, or is in a user namespace, may be traced by processes that may not trace the shim, and has the shim's memory.
/// The kernel's flag (dumpable) is the memory's; its old value comes back with the end of the last of these.
pub(super) struct Closed(());

/// How many there are, and the flag of before.
static CLOSED: Mutex<(usize, c_int)> = Mutex::new((0, 0));

fn counted() -> MutexGuard<'static, (usize, c_int)> {
    CLOSED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Closed {
    /// From now on.
    pub(super) fn now() -> Self {
        let closed = Self::by_child();
        // SAFETY: sets a flag of this process.
        unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0) };
        closed
    }

    /// When the child closes it (`steps`). Until then it may write files of its own in /proc, which on a node in a user namespace
    /// belong to the root outside as long as it is closed.
    pub(super) fn by_child() -> Self {
        let mut closed = counted();
        if closed.0 == 0 {
            // SAFETY: asks a number of this process.
            closed.1 = unsafe { libc::prctl(libc::PR_GET_DUMPABLE) };
        }
        closed.0 += 1;
        Self(())
    }
}

impl Drop for Closed {
    fn drop(&mut self) {
        let mut closed = counted();
        closed.0 -= 1;
        if closed.0 == 0 {
            // SAFETY: sets a flag of this process to what it was.
            unsafe { libc::prctl(libc::PR_SET_DUMPABLE, closed.1) };
        }
    }
}
