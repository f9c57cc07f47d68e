//! Where a child waits before its first step, while the shim does for it what only the node's root may do.
//!
//! If the shim ends meanwhile, or gives the child up, the child ends.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd, RawFd},
};

use nix::{
    fcntl::OFlag,
    unistd::{pipe2, write},
};
use tokio::{io::AsyncReadExt, net::unix::pipe::Receiver};

use super::steps::Step;

/// The shim's side.
#[derive(Debug)]
pub(crate) struct Barrier {
    arrival: Receiver,
    gate: OwnedFd,
}

/// The child's side, of which it has copies.
#[derive(Debug)]
pub(crate) struct ChildEnds {
    arrival: OwnedFd,
    gate: OwnedFd,
    shims: RawFd,
}

/// Both sides.
///
/// # Errors
/// The kernel's.
pub(crate) fn barrier() -> io::Result<(Barrier, ChildEnds)> {
    let (arrival, tell) = pipe2(OFlag::O_CLOEXEC)?;
    let (wait, gate) = pipe2(OFlag::O_CLOEXEC)?;
    let shims = gate.as_raw_fd();
    let barrier = Barrier { arrival: Receiver::from_owned_fd(arrival)?, gate };
    Ok((barrier, ChildEnds { arrival: tell, gate: wait, shims }))
}

impl Barrier {
    /// Waits for the child; `false` if it is gone, or was never made.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) async fn has_arrived(&mut self) -> io::Result<bool> {
        Ok(self.arrival.read(&mut [0]).await? > 0)
    }

    /// Lets the child go on.
    ///
    /// # Errors
    /// It is gone.
    pub(crate) fn open(self) -> io::Result<()> {
        write(&self.gate, b"1")?;
        Ok(())
    }
}

impl ChildEnds {
    pub(super) fn step(&self) -> Step {
        Step::Barrier(self.shims, self.arrival.as_raw_fd(), self.gate.as_raw_fd())
    }
}
