//! SIGTERM and SIGINT of an installer that stays.
//!
//! Owns the descriptor by which they arrive, and the wait for one of them.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
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
    pub fn wait(&self, time: Duration) -> io::Result<Woken> {
        let descriptor = self.arrived.as_fd();
        let mut descriptors = [PollFd::new(&descriptor, PollFlags::IN)];
        let time = Timespec {
            tv_sec: time.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: time.subsec_nanos().into(),
        };
        match poll(&mut descriptors, Some(&time)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => Ok(Woken::ByTime),
            Ok(_) => Ok(Woken::BySignal),
            Err(error) => Err(error.into()),
        }
    }
}
