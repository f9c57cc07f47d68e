//! How long the one thread of the shim was away from what it serves, and on what.
//!
//! Owns the measure: the longest time of one round, between two looks at what has happened outside. A round is a poll of
//! everything that is ready, most often a few microseconds. Whatever makes it long, a wait or work, is in it.

use std::{
    cell::Cell,
    future::{Future, poll_fn},
    pin::pin,
    time::Duration,
};

use tokio::time::Instant;
use tracing::warn;

/// From here on it is in the log: containerd gives a State two seconds.
const TOO_LONG: Duration = Duration::from_secs(1);

/// Time away, and what took most of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Away {
    /// How long.
    pub time: Duration,
    /// On what.
    pub on: &'static str,
}

const NEVER: Away = Away { time: Duration::ZERO, on: "" };
/// Where no piece that has a name took half of a round.
const NOTHING_LONG: &str = "many things at once";

thread_local! {
    static LONGEST: Cell<Away> = const { Cell::new(NEVER) };
    /// Of this round.
    static LONGEST_PIECE: Cell<Away> = const { Cell::new(NEVER) };
}

/// The longest round of this thread so far.
pub fn longest() -> Away {
    LONGEST.get()
}

/// Runs a piece of a round that has a name.
pub fn during<T>(on: &'static str, piece: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let result = piece();
    let time = began.elapsed();
    if time > LONGEST_PIECE.get().time {
        LONGEST_PIECE.set(Away { time, on });
    }
    result
}

/// A future each of whose polls is such a piece.
pub async fn named<F: Future>(on: &'static str, future: F) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|context| during(on, || future.as_mut().poll(context))).await
}

/// All that a thread does: each poll is a round.
pub async fn measured<F: Future>(all: F) -> F::Output {
    let mut all = pin!(all);
    poll_fn(|context| {
        let began = Instant::now();
        let result = all.as_mut().poll(context);
        end_of_round(began.elapsed());
        result
    })
    .await
}

fn end_of_round(time: Duration) {
    let piece = LONGEST_PIECE.replace(NEVER);
    if time <= LONGEST.get().time {
        return;
    }
    let on = if piece.time * 2 >= time { piece.on } else { NOTHING_LONG };
    LONGEST.set(Away { time, on });
    if time >= TOO_LONG {
        warn!(?time, on, "the shim was away: nothing of its pod was served");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::run_for_any_time;

    #[test]
    fn the_longest_round_is_known_with_what_took_it() {
        let sleep = |milliseconds| std::thread::sleep(Duration::from_millis(milliseconds));
        run_for_any_time(measured(async {
            during("something", || sleep(30));
            tokio::task::yield_now().await;
            during("something short", || sleep(1));
            tokio::task::yield_now().await;
            // This round is not over yet.
            during("what is under way", || sleep(100));
            let Away { time, on } = longest();
            assert_eq!(on, "something");
            assert!((30..100).contains(&time.as_millis()), "{time:?}");
        }));
        assert_eq!(longest().on, "what is under way");
        run_for_any_time(measured(named("a task", async {
            sleep(70);
            sleep(70);
        })));
        assert_eq!(longest().on, "a task");
        run_for_any_time(measured(async { (0..9).for_each(|_| during("one of many", || sleep(30))) }));
        assert_eq!(longest().on, NOTHING_LONG);
    }
}
