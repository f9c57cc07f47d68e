//! Bounds how much of a processor a pod's restarts and probes take outside its cgroup.
//!
//! The OCI runtime runs outside the container's limits: within them it could fail to end the container. So a pod that keeps it
//! busy pays with time: its restarts and probes wait. Owns this account. What callers request (a create, a start, a kill, a
//! delete) counts too, and may never wait here.

use std::cell::Cell;
use std::time::Duration;

use processes::reaper::Reaper;
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

/// The account of one pod.
#[derive(Debug)]
pub(crate) struct Throttle {
    reaper: Reaper,
    slots: Semaphore,
    /// The account as of the last time that it was balanced.
    left: Cell<CpuAccount>,
}

#[derive(Clone, Copy, Debug)]
struct CpuAccount {
    left: Duration,
    debt: Duration,
    at: Instant,
    used: Duration,
}

impl Throttle {
    pub(crate) fn new(reaper: Reaper) -> Self {
        let account = CpuAccount {
            left: BURST,
            debt: Duration::ZERO,
            at: Instant::now(),
            used: reaper.processor_time(),
        };
        Self { reaper, slots: Semaphore::new(AT_A_TIME), left: Cell::new(account) }
    }

    /// Waits until a restart or a probe may run, or until its container's caller is in a hurry: what ends or deletes it waits for
    /// what waits here. It counts as running until the answer is dropped.
    ///
    /// In a stop it waits as long. A restart that is not wanted any more is given up then (T10), so no stop waits for it.
    pub(crate) async fn acquire(&self, hurry: &Notify) -> Option<SemaphorePermit<'_>> {
        let hurried = hurry.notified();
        let wait = async {
            let slot = self.slots.acquire().await.ok();
            let until = self.due();
            if until > Instant::now() {
                debug!(wait = ?(until - Instant::now()), "the pod's restarts and probes have used their share of a processor: this one waits");
                tokio::time::sleep_until(until).await;
            }
            slot
        };
        tokio::select! {
            slot = tokio::time::timeout(LONGEST, wait) => slot.unwrap_or_default(),
            () = hurried => None,
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

    /// DESIGN §6, issue 18: a pod waits for what it has used, and a caller waits for nothing.
    #[test]
    fn what_a_pod_has_used_it_waits_for() {
        run(async {
            let reaper = Reaper::start().expect("a reaper");
            let (throttle, hurry) = (Throttle::new(reaper.clone()), Notify::new());
            let began = Instant::now();
            drop(throttle.acquire(&hurry).await);
            assert!(began.elapsed() < Duration::from_millis(100));
            // As if the pod had used 100 ms more than the burst: at a fifth of a processor that is half a second.
            let mut account = throttle.account();
            (account.left, account.debt) = (Duration::ZERO, Duration::from_millis(100));
            throttle.left.set(account);
            let began = Instant::now();
            drop(throttle.acquire(&hurry).await);
            let waited = began.elapsed();
            assert!(waited >= Duration::from_millis(450), "{waited:?}");
            account = throttle.account();
            (account.left, account.debt) = (Duration::ZERO, Duration::from_secs(100));
            throttle.left.set(account);
            let (began, other) = (Instant::now(), Notify::new());
            let of_another = async {
                let waits = throttle.acquire(&other);
                assert!(tokio::time::timeout(Duration::from_millis(900), waits).await.is_err());
            };
            let (slot, (), ()) = tokio::join!(throttle.acquire(&hurry), of_another, async {
                tokio::time::sleep(Duration::from_millis(50)).await;
                hurry.notify_waiters();
            });
            assert!(slot.is_none());
            assert!(began.elapsed() < Duration::from_secs(2));
        });
    }

    #[test]
    fn so_many_at_a_time() {
        run(async {
            let (throttle, hurry) = (Throttle::new(Reaper::start().expect("a reaper")), Notify::new());
            let mut turns = Vec::new();
            for _ in 0..AT_A_TIME {
                turns.push(throttle.acquire(&hurry).await.expect("a slot"));
            }
            let wait = Duration::from_millis(50);
            assert!(tokio::time::timeout(wait, throttle.acquire(&hurry)).await.is_err());
            turns.pop();
            assert!(tokio::time::timeout(wait, throttle.acquire(&hurry)).await.is_ok());
        });
    }
}
