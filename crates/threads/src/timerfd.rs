//! A timer of the kernel: a descriptor that can be read when a time has passed. It is finer than the milliseconds of tokio's timers, and
//! one thread may set what another one waits for.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd};
use std::time::Duration;

/// A timer that is not set.
///
/// # Errors
/// No descriptors are left.
pub fn make() -> io::Result<File> {
    // SAFETY: makes a descriptor and touches no memory of ours.
    let timer =
        unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC) };
    if timer < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for this call alone.
    Ok(unsafe { File::from_raw_fd(timer) })
}

/// It can be read once after `length`, which is below a second and not zero.
///
/// # Errors
/// The kernel's: a length that is not allowed.
pub fn set(timer: BorrowedFd<'_>, length: Duration) -> io::Result<()> {
    let once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let at = libc::timespec { tv_sec: 0, tv_nsec: length.subsec_nanos().into() };
    let setting = libc::itimerspec { it_interval: once, it_value: at };
    // SAFETY: the kernel reads one setting, which outlives the call, and writes nothing.
    match unsafe { libc::timerfd_settime(timer.as_raw_fd(), 0, &raw const setting, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
