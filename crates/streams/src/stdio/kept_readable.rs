//! The shim's own read end of a fifo whose last writer has gone or will go.
//!
//! Owns when it is closed: not before the fifo has been read, since a client may be away for a moment and comes back for the rest;
//! and not much later, since a client may never delete what it has run (D8).

use std::fs::File;
use std::io;
use std::time::Duration;

use nix::poll::PollFlags;
use threads::async_file;
use threads::hand::tenant;
use tokio::io::Interest;
use tokio::task::JoinHandle;

use super::mover::is_ready;
use super::pipe::unread;

/// No event says that a fifo has been read. Its reader is usually waiting for it.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Closes a read end once there is no writer and nothing to read. Dropping this closes it at once.
#[derive(Debug)]
pub(super) struct KeptReadable(JoinHandle<()>);

impl KeptReadable {
    /// Waits on the current `LocalSet`.
    pub(super) fn until_read(reader: File) -> Self {
        Self(tenant::spawn(async move {
            // If it cannot be watched, for want of descriptors, it goes now.
            let _ = wait(reader).await;
        }))
    }
}

impl Drop for KeptReadable {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn wait(reader: File) -> io::Result<()> {
    // No interest in data, which other processes may write for long: only in the end of the last writer.
    let reader = async_file::register(reader, Interest::PRIORITY)?;
    while !is_ready(reader.get_ref(), PollFlags::empty())? {
        reader.ready(Interest::PRIORITY).await?.clear_ready();
    }
    let mut pause = FIRST_PAUSE;
    while unread(reader.get_ref())? > 0 {
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
    Ok(())
}
