//! Bounds how much of a processor a pod's restarts and probes take outside its cgroup.
//!
//! The OCI runtime runs outside the container's limits: within them it could fail to end the container. So a pod that keeps it
//! busy pays with time: its restarts and probes wait. Owns this account. What callers request (a create, a start, a kill, a
//! delete) counts too, and may never wait here.

use std::cell::Cell;
use std::time::Duration;

use oci_runtime::reaper::Reaper;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::time::Instant;
use tracing::debug;

/// What a pod may use at once: some forty calls of runc.
const BURST: Duration = Duration::from_secs(2);
/// A pod may use one part in so many of a processor all the time.
const SHARE: u32 = 5;
/// How many restarts and probes run at a time.
const AT_A_TIME: usize = 4;
/// The longest wait of one of them, as long as R4's longest delay.
const LONGEST: Duration = Duration::from_secs(60);
/// The same while the pod stops, whose time is short.
const LONGEST_IN_STOP: Duration = Duration::from_secs(1);

/// The account of one pod.
#[derive(Debug)]
pub(crate) struct Throttle {
    reaper: Reaper,
    slots: Semaphore,
    /// The account as of the last time that it was balanced.
    left: Cell<CpuAccount>,
    stop: Cell<Stop>,
    skip: Notify,
}

#[derive(Clone, Copy, Debug)]
struct CpuAccount {
    left: Duration,
    debt: Duration,
    at: Instant,
    used: Duration,
}

/// Whether the pod is being stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stop {
    None,
    UnderWay,
}

impl Throttle {
    pub(crate) fn new(reaper: Reaper) -> Self {
        let account = CpuAccount {
            left: BURST,
            debt: Duration::ZERO,
            at: Instant::now(),
            used: reaper.processor_time(),
        };
        Self {
            reaper,
            slots: Semaphore::new(AT_A_TIME),
            left: Cell::new(account),
            stop: Cell::new(Stop::None),
            skip: Notify::new(),
        }
    }

    /// Waits until a restart or a probe may run. It counts as running until the answer is dropped.
    pub(crate) async fn acquire(&self) -> Option<SemaphorePermit<'_>> {
        let skipped = self.skip.notified();
        let wait = async {
            let slot = self.slots.acquire().await.ok();
            let until = self.due();
            if until > Instant::now() {
                debug!(wait = ?(until - Instant::now()), "the pod's restarts and probes have used their share of a processor: this one waits");
                tokio::time::sleep_until(until).await;
            }
            slot
        };
        let longest = match self.stop.get() {
            Stop::None => LONGEST,
            Stop::UnderWay => LONGEST_IN_STOP,
        };
        tokio::select! {
            slot = tokio::time::timeout(longest, wait) => slot.unwrap_or_default(),
            () = skipped => None,
        }
    }

    /// Ends all current waits: a caller waits for the end of what waits here (a stop, a kill, a delete).
    pub(crate) fn skip_waits(&self) {
        self.skip.notify_waiters();
    }

    /// Whether the pod is being stopped. The beginning of a stop ends all current waits.
    pub(crate) fn stop_is(&self, now: Stop) {
        if self.stop.replace(now) == Stop::None && now == Stop::UnderWay {
            self.skip_waits();
        }
    }

    /// When the debt is paid off.
    fn due(&self) -> Instant {
        let account = self.account();
        account.at + account.debt * SHARE
    }

    fn account(&self) -> CpuAccount {
        let (before, now, used) = (self.left.get(), Instant::now(), self.reaper.processor_time());
        let earned = before.left + (now - before.at) / SHARE;
        let owed = before.debt + used.saturating_sub(before.used);
        let account = CpuAccount {
            left: earned.saturating_sub(owed).min(BURST),
            debt: owed.saturating_sub(earned),
            at: now,
            used,
        };
        self.left.set(account);
        account
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(test: impl Future<Output = ()>) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        tokio::task::LocalSet::new().block_on(&runtime, test);
    }

    /// DESIGN §6, issue 18: a pod waits for what it has used, and a stop waits for nothing.
    #[test]
    fn what_a_pod_has_used_it_waits_for() {
        run(async {
            let reaper = Reaper::start().expect("a reaper");
            let throttle = Throttle::new(reaper.clone());
            let began = Instant::now();
            drop(throttle.acquire().await);
            assert!(began.elapsed() < Duration::from_millis(100));
            // As if the pod had used 100 ms more than the burst: at a fifth of a processor that is half a second.
            let mut account = throttle.account();
            (account.left, account.debt) = (Duration::ZERO, Duration::from_millis(100));
            throttle.left.set(account);
            let began = Instant::now();
            drop(throttle.acquire().await);
            let waited = began.elapsed();
            assert!(waited >= Duration::from_millis(450), "{waited:?}");
            account = throttle.account();
            (account.left, account.debt) = (Duration::ZERO, Duration::from_secs(100));
            throttle.left.set(account);
            let began = Instant::now();
            let (slot, ()) = tokio::join!(throttle.acquire(), async {
                tokio::time::sleep(Duration::from_millis(50)).await;
                throttle.stop_is(Stop::UnderWay);
            });
            assert!(slot.is_none());
            assert!(began.elapsed() < Duration::from_millis(900));
            drop(throttle.acquire().await);
            assert!(began.elapsed() < LONGEST_IN_STOP * 2);
        });
    }

    #[test]
    fn so_many_at_a_time() {
        run(async {
            let throttle = Throttle::new(Reaper::start().expect("a reaper"));
            let mut turns = Vec::new();
            for _ in 0..AT_A_TIME {
                turns.push(throttle.acquire().await.expect("a slot"));
            }
            let wait = Duration::from_millis(50);
            assert!(tokio::time::timeout(wait, throttle.acquire()).await.is_err());
            turns.pop();
            assert!(tokio::time::timeout(wait, throttle.acquire()).await.is_ok());
        });
    }
}
