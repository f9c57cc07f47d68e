//! SIGTERM and SIGINT of a command that stays: the installer, the server of metrics.
//!
//! Owns the descriptor by which they arrive, and the wait for one of them.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitResult {
    /// What was waited for is there, or the time is over.
    ByTime,
    /// A signal has arrived, now or before.
    BySignal,
}

/// SIGTERM and SIGINT, from here on without their usual effect. As process 1 of a container it would not get them else.
#[derive(Debug)]
pub struct Signals {
    arrived: SignalFd,
}

impl Signals {
    /// Takes the signals.
    ///
    /// # Errors
    /// The system's error.
    pub fn take() -> io::Result<Self> {
        let set: SigSet = [Signal::SIGTERM, Signal::SIGINT].into_iter().collect();
        set.thread_block()?;
        Ok(Self { arrived: SignalFd::with_flags(&set, SfdFlags::SFD_CLOEXEC)? })
    }

    /// Waits so long for a signal. One that has arrived ends every later wait too.
    ///
    /// # Errors
    /// The system's error.
    pub fn wait(&self, time: Duration) -> io::Result<WaitResult> {
        self.poll(None, Some(time))
    }

    /// Waits for a signal, or until that descriptor can be read.
    ///
    /// # Errors
    /// The system's error.
    pub fn wait_with(&self, other: BorrowedFd<'_>) -> io::Result<WaitResult> {
        self.poll(Some(other), None)
    }

    fn poll(&self, other: Option<BorrowedFd<'_>>, time: Option<Duration>) -> io::Result<WaitResult> {
        let arrived = self.arrived.as_fd();
        let mut descriptors: Vec<_> = [Some(arrived), other]
            .into_iter()
            .flatten()
            .map(|one| PollFd::from_borrowed_fd(one, PollFlags::IN))
            .collect();
        let time = time.map(|time| Timespec {
            tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos().into(),
        });
        match poll(&mut descriptors, time.as_ref()) {
            Err(rustix::io::Errno::INTR) => Ok(WaitResult::ByTime),
            Err(error) => Err(error.into()),
            Ok(_) if descriptors[0].revents().is_empty() => Ok(WaitResult::ByTime),
            Ok(_) => Ok(WaitResult::BySignal),
        }
    }
}
