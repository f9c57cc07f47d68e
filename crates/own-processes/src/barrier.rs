//! Where a child waits before its first step, while the shim does for it what only the node's root may do.
//!
//! If the shim ends meanwhile, or gives the child up, the child ends.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream as Socket;

use nix::unistd::write;
use tokio::io::AsyncReadExt;
use tokio::net::UnixStream;

use super::steps::Step;

/// The shim's side.
#[derive(Debug)]
pub struct Barrier(UnixStream);

/// The child's side, of which it has a copy; it has one of the shim's too, which it must close.
#[derive(Debug)]
pub struct ChildEnd {
    own: Socket,
    shims: RawFd,
}

/// Both sides.
///
/// # Errors
/// The kernel's.
pub fn barrier() -> io::Result<(Barrier, ChildEnd)> {
    let (shims, own) = Socket::pair()?;
    shims.set_nonblocking(true)?;
    let end = ChildEnd { own, shims: shims.as_raw_fd() };
    Ok((Barrier(UnixStream::from_std(shims)?), end))
}

impl Barrier {
    /// Waits for the child; `false` if it is gone, or was never made.
    ///
    /// # Errors
    /// The kernel's.
    pub async fn has_arrived(&mut self) -> io::Result<bool> {
        Ok(self.0.read(&mut [0]).await? > 0)
    }

    /// Lets the child go on.
    ///
    /// # Errors
    /// It is gone.
    pub fn open(self) -> io::Result<()> {
        write(&self.0, b"1")?;
        Ok(())
    }
}

impl ChildEnd {
    pub(super) fn step(&self) -> Step {
        Step::Barrier { own: self.own.as_raw_fd(), shims: self.shims }
    }
}
