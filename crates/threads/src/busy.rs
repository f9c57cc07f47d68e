//! How long the shim's one thread was busy without serving its pod, and with what.
//!
//! Owns this measure: the time of the longest round. A round is one poll of everything that is ready, between two
//! checks for outside events; most take a few microseconds. It counts waits and work alike, but not the time in which
//! the thread was ready to run and others had the processor: that is the node's load, not the shim's doing.

use std::cell::Cell;
use std::fs::File;
use std::future::{Future, poll_fn};
use std::os::unix::fs::FileExt;
use std::pin::pin;
use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;

/// From this time on a round is logged: containerd gives a State request two seconds.
const TOO_LONG: Duration = Duration::from_secs(1);

/// Time in which the shim served nothing, and what took most of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LongestRound {
    /// How long.
    pub time: Duration,
    /// With what.
    pub on: &'static str,
}

const NEVER: LongestRound = LongestRound { time: Duration::ZERO, on: "" };
/// When no named piece took half of the round.
const NOTHING_LONG: &str = "many things at once";

thread_local! {
    static LONGEST: Cell<LongestRound> = const { Cell::new(NEVER) };
    /// The longest piece of this round.
    static LONGEST_PIECE: Cell<LongestRound> = const { Cell::new(NEVER) };
}

/// The longest round of this thread so far.
pub fn longest() -> LongestRound {
    LONGEST.get()
}

/// Runs a named piece of a round.
pub fn during<T>(on: &'static str, piece: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let result = piece();
    let time = began.elapsed();
    if time > LONGEST_PIECE.get().time {
        LONGEST_PIECE.set(LongestRound { time, on });
    }
    result
}

/// A future each of whose polls is such a named piece.
pub async fn named<F: Future>(on: &'static str, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| during(on, || future.as_mut().poll(context))).await
}

/// Wraps everything that a thread does: each poll is a round.
pub async fn measured<F: Future>(all: F) -> F::Output {
    let mut all = pin!(all);
    let queue = RunQueue::of_this_thread();
    poll_fn(|context| {
        let (began, queued) = (Instant::now(), queue.time());
        let result = all.as_mut().poll(context);
        end_of_round(began.elapsed(), queue.time().saturating_sub(queued));
        result
    })
    .await
}

fn end_of_round(whole: Duration, queued: Duration) {
    let piece = LONGEST_PIECE.replace(NEVER);
    let time = whole.saturating_sub(queued);
    if time <= LONGEST.get().time {
        return;
    }
    let on = if piece.time * 2 >= whole { piece.on } else { NOTHING_LONG };
    LONGEST.set(LongestRound { time, on });
    if time >= TOO_LONG {
        warn!(?time, ?queued, on, "the shim was busy: it served nothing of its pod for this time");
    }
}

/// How long a thread has waited for a processor, by the kernel's count (`CONFIG_SCHED_INFO`; always 0 without it).
#[derive(Debug)]
pub struct RunQueue(Option<File>);

impl RunQueue {
    /// This thread's.
    pub fn of_this_thread() -> Self {
        Self(File::open("/proc/thread-self/schedstat").ok())
    }

    /// How long so far.
    pub fn time(&self) -> Duration {
        let mut text = [0; 64];
        let length = self.0.as_ref().and_then(|file| file.read_at(&mut text, 0).ok()).unwrap_or_default();
        // Fields: time on a processor, time in the queue for one, number of turns.
        let numbers = str::from_utf8(&text[..length]).unwrap_or_default();
        let queued = numbers.split(' ').nth(1).and_then(|nanoseconds| nanoseconds.parse().ok());
        Duration::from_nanos(queued.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests;
