//! A pause that is shorter than the milliseconds of tokio's timers.
//!
//! Owns one timer of the kernel, made at the first pause: most terminals never need one.

use std::{
    fs::File,
    io::{self, Read},
    os::fd::{AsRawFd, FromRawFd},
    time::Duration,
};

use tokio::io::{Interest, unix::AsyncFd};

use crate::async_file;

#[derive(Debug, Default)]
pub(super) struct Pause(Option<AsyncFd<File>>);

impl Pause {
    /// Returns after `length`, which is below a second and not zero.
    ///
    /// # Errors
    /// No descriptors are left.
    pub(super) async fn wait(&mut self, length: Duration) -> io::Result<()> {
        let timer = match &mut self.0 {
            Some(timer) => timer,
            place => place.insert(async_file::register(make()?, Interest::READABLE)?),
        };
        set(timer.get_ref(), length)?;
        timer.async_io(Interest::READABLE, |mut timer| timer.read(&mut [0; 8])).await.map(drop)
    }
}

fn make() -> io::Result<File> {
    // SAFETY: makes a descriptor and touches no memory of ours.
    let timer =
        unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, libc::TFD_NONBLOCK | libc::TFD_CLOEXEC) };
    if timer < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just made this descriptor for this call alone.
    Ok(unsafe { File::from_raw_fd(timer) })
}

fn set(timer: &File, length: Duration) -> io::Result<()> {
    let once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let at = libc::timespec { tv_sec: 0, tv_nsec: length.subsec_nanos().into() };
    let setting = libc::itimerspec { it_interval: once, it_value: at };
    // SAFETY: the kernel reads one setting, which outlives the call, and writes nothing.
    match unsafe { libc::timerfd_settime(timer.as_raw_fd(), 0, &raw const setting, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
