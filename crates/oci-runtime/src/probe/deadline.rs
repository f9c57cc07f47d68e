//! How long an attempt may go on, in the process that makes it.
//!
//! Owns waits for a socket, which end with the attempt's time.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::time::{ClockId, clock_gettime};

/// The kernel's time since the machine started: the same in all processes.
pub(super) fn now() -> Duration {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map(Duration::from).unwrap_or_default()
}

/// Why an attempt has failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Failed {
    /// Its time is over.
    OutOfTime,
    /// In words for people.
    Because(String),
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::Because(error.to_string())
    }
}

impl From<Errno> for Failed {
    fn from(error: Errno) -> Self {
        io::Error::from(error).into()
    }
}

/// Waits until the socket has one of these events, until `deadline` at most.
pub(super) fn wait_for(socket: BorrowedFd<'_>, events: PollFlags, deadline: Duration) -> Result<(), Failed> {
    loop {
        let left = deadline.saturating_sub(now());
        if left.is_zero() {
            return Err(Failed::OutOfTime);
        }
        // Rounded up: a wait of no time would spin.
        let limit = PollTimeout::try_from(left + Duration::from_millis(1)).unwrap_or(PollTimeout::MAX);
        match poll(&mut [PollFd::new(socket, events)], limit) {
            Err(Errno::EINTR) | Ok(0) => {}
            Err(error) => return Err(error.into()),
            Ok(_) => return Ok(()),
        }
    }
}

/// A connection whose reads and writes wait until `deadline` at most.
pub(super) struct Connection {
    stream: TcpStream,
    deadline: Duration,
}

impl Connection {
    /// `stream` does not block.
    pub(super) fn new(stream: TcpStream, deadline: Duration) -> Self {
        Self { stream, deadline }
    }

    pub(super) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Failed> {
        self.when(PollFlags::POLLIN, |stream| stream.read(buffer))
    }

    pub(super) fn write_all(&mut self, mut bytes: &[u8]) -> Result<(), Failed> {
        while !bytes.is_empty() {
            let written = self.when(PollFlags::POLLOUT, |stream| stream.write(bytes))?;
            bytes = &bytes[written..];
        }
        Ok(())
    }

    fn when(
        &mut self,
        events: PollFlags,
        mut try_it: impl FnMut(&mut TcpStream) -> io::Result<usize>,
    ) -> Result<usize, Failed> {
        loop {
            wait_for(self.stream.as_fd(), events, self.deadline)?;
            match try_it(&mut self.stream) {
                Err(error)
                    if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                result => return Ok(result?),
            }
        }
    }
}
