//! How often the reaper sees to what a container makes of its parent without end: children that are nothing to podshim
//! (`CLONE_PARENT`), stops and continuations, requests to be traced.
//!
//! Owns the pace, and that no signal of them wakes the thread meanwhile. The exits that a caller waits for are looked at between two
//! of them by the caller of this.

use std::ptr::null_mut;
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use tokio::time::Instant;

/// After so much work on it the thread rests: a tenth of a processor.
const WORK: Duration = Duration::from_millis(1);
/// A signal that wakes it is so much work at least.
const A_WAKE: Duration = Duration::from_micros(50);
/// For how long it rests, and how late it sees an exit that a caller waits for.
pub(super) const REST: Duration = Duration::from_millis(10);
/// So much work for what is left when no signal comes any more: the first process of a pid namespace does not end before all others of
/// it have been reaped.
const WORK_IN_SILENCE: Duration = Duration::from_millis(100);

/// How much work may be done before the next rest.
#[derive(Debug)]
pub(super) struct Pace {
    left: Duration,
    last: Instant,
    /// From the first rest until a rest in which no signal has come.
    deaf: Option<Deaf>,
}

/// Whether the thread has rested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    AtOnce,
    Rested,
}

impl Default for Pace {
    fn default() -> Self {
        Self { left: WORK, last: Instant::now(), deaf: None }
    }
}

impl Pace {
    /// Whether no SIGCHLD wakes the thread: then it has to look without one.
    pub(super) fn is_deaf(&self) -> bool {
        self.deaf.is_some()
    }

    /// Counts the work since `began`. Rests when there was too much of late.
    pub(super) async fn count(&mut self, began: Instant) -> Step {
        if began.duration_since(self.last) >= REST {
            self.left = self.left.max(WORK);
        }
        self.last = Instant::now();
        self.left = self.left.saturating_sub(began.elapsed().max(A_WAKE));
        if !self.left.is_zero() {
            return Step::AtOnce;
        }
        self.rest().await;
        Step::Rested
    }

    pub(super) async fn rest(&mut self) {
        let deaf = self.deaf.get_or_insert_with(Deaf::now);
        tokio::time::sleep(REST).await;
        match deaf.has_missed_one() {
            true => self.left = WORK,
            false => (self.left, self.deaf) = (WORK_IN_SILENCE, None),
        }
        self.last = Instant::now();
    }
}

/// The kernel keeps one SIGCHLD for this thread until it is dropped; of the others the sender has the work. Children start without it.
#[derive(Debug)]
struct Deaf;

impl Deaf {
    fn now() -> Self {
        let _ = children().thread_block();
        Self
    }

    /// Takes what the kernel has kept.
    fn has_missed_one(&self) -> bool {
        let at_once = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the set and the time are valid; no more is asked for than the number.
        unsafe { libc::sigtimedwait(children().as_ref(), null_mut(), &raw const at_once) == libc::SIGCHLD }
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
