//! Files that tell when they are ready: fifos, ptys and event descriptors on the reactor.

use std::{fs::File, io};

use tokio::io::{Interest, unix::AsyncFd};

/// Registers a non-blocking file. Fails for regular files, which are always ready.
pub(crate) fn register(file: File, interest: Interest) -> io::Result<AsyncFd<File>> {
    // SAFETY: a File is the only owner of its descriptor and keeps it open until it is dropped, which
    // AsyncFd does after deregistering.
    Ok(unsafe { AsyncFd::register_with_interest(file, interest) }?)
}
