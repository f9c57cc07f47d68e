//! How often the reaper sees to what a container makes of its parent without end: children that are nothing to podshim
//! (`CLONE_PARENT`), stops and continuations, requests to be traced.
//!
//! Owns the pace, and that no signal of them wakes the thread meanwhile. The exits that a caller waits for are looked at between two
//! of them by the caller of this.

use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use tokio::{signal::unix::Signal as SignalStream, time::Instant};

/// So many at a time, and as many more after each rest: less than 6,000 a second, a tenth of a processor.
const AT_A_TIME: u32 = 64;
const REST: Duration = Duration::from_millis(10);
/// Nothing more comes if there was no signal in this time.
const SILENCE: Duration = Duration::from_millis(1);
/// So many then: what is left. The first process of a pid namespace does not end before all others of it have been reaped.
const IN_SILENCE: u32 = 4096;

/// What may be seen to before the next rest.
#[derive(Debug)]
pub(super) struct Pace {
    left: u32,
    since: Instant,
}

/// Whether the thread has rested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    AtOnce,
    Rested,
}

impl Default for Pace {
    fn default() -> Self {
        Self { left: AT_A_TIME, since: Instant::now() }
    }
}

impl Pace {
    /// Counts one of them. Rests when there were too many of late.
    pub(super) async fn count(&mut self, signals: &mut SignalStream) -> Step {
        if self.since.elapsed() >= REST {
            *self = Self { left: self.left.max(AT_A_TIME), ..Self::default() };
        }
        if self.left > 0 {
            self.left -= 1;
            return Step::AtOnce;
        }
        let deaf = Deaf::now();
        tokio::time::sleep(REST).await;
        drop(deaf);
        let left = tokio::select! {
            biased;
            _ = signals.recv() => AT_A_TIME,
            () = tokio::time::sleep(SILENCE) => IN_SILENCE,
        };
        *self = Self { left, ..Self::default() };
        Step::Rested
    }
}

/// The kernel keeps one SIGCHLD for this thread until it is dropped; of the others the sender has the work. Children start without it.
struct Deaf;

impl Deaf {
    fn now() -> Self {
        let _ = children().thread_block();
        Self
    }
}

impl Drop for Deaf {
    fn drop(&mut self) {
        let _ = children().thread_unblock();
    }
}

fn children() -> SigSet {
    Signal::SIGCHLD.into()
}
