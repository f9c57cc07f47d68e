//! A process that asks its parent to trace it (`PTRACE_TRACEME`): it stops at each of its signals, and waitid(2) tells its parent,
//! whatever that waits for.
//!
//! Owns the end of that: podshim traces none.

use std::io;
use std::ptr::null_mut;

use nix::unistd::Pid;

/// Lets the process go on as if it had not asked: with the signal at which it has stopped. To be called by its parent's thread, which
/// is the one that the kernel gives orphans: the first of the shim's.
///
/// # Errors
/// The kernel's: it has been killed meanwhile, or another process traces it.
pub(super) fn let_go(pid: Pid) -> io::Result<()> {
    let signal = match signal_of(pid) {
        // What the kernel sends at each execve of a process that is traced by an old-fashioned tracer, and only then.
        Some(libc::SIGTRAP) | None => 0,
        Some(signal) => signal,
    };
    // SAFETY: only numbers are passed.
    match unsafe { libc::ptrace(libc::PTRACE_DETACH, pid.as_raw(), null_mut::<()>(), signal as libc::c_long) }
    {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The signal that waits for its delivery; none in a stop of the whole process, which has had its signal.
fn signal_of(pid: Pid) -> Option<libc::c_int> {
    // SAFETY: siginfo_t is plain data for which all zeroes is a valid value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    // SAFETY: `info` is valid for the kernel to fill.
    let asked =
        unsafe { libc::ptrace(libc::PTRACE_GETSIGINFO, pid.as_raw(), null_mut::<()>(), &raw mut info) };
    (asked == 0).then_some(info.si_signo)
}
