//! Files that signal their readiness (fifos, ptys, event descriptors), registered with the reactor.

use std::fs::File;
use std::io;

use nix::poll::{PollFd, PollTimeout, poll};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Registers a non-blocking file.
///
/// # Errors
/// The kernel's: a regular file is always ready and cannot be registered.
pub fn register(file: File, interest: Interest) -> io::Result<AsyncFd<File>> {
    // SAFETY: a File is the only owner of its descriptor and keeps it open until it is dropped, which
    // AsyncFd does after deregistering.
    Ok(unsafe { AsyncFd::register_with_interest(file, interest) }?)
}

/// Whether a descriptor has one of the wanted events, or a hang-up or error, now.
///
/// Retries when a signal interrupts it: that can happen to poll(2) even without waiting, and the shim gets SIGCHLD all
/// the time.
///
/// # Errors
/// The kernel's.
pub fn poll_now(descriptor: PollFd<'_>) -> io::Result<bool> {
    let mut descriptors = [descriptor];
    loop {
        match poll(&mut descriptors, PollTimeout::ZERO) {
            Err(nix::Error::EINTR) => {}
            ready => return Ok(ready? > 0),
        }
    }
}
