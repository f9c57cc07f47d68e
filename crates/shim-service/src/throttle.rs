//! Bounds how much of a processor a pod's restarts and probes take outside its cgroup.
//!
//! The OCI runtime runs outside the container's limits: within them it could fail to end the container. So a pod that keeps it
//! busy pays with time: its restarts and probes wait. Owns this account. What callers request (a create, a start, a kill, a
//! delete) counts too, and may never wait here.

use std::cell::Cell;
use std::time::Duration;

use processes::reaper::{Charge, Reaper};
use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::time::Instant;
use tracing::debug;

/// What a pod may use at once: some forty calls of runc.
const BURST: Duration = Duration::from_secs(2);
/// What a restart or a probe is taken to cost before one was seen.
const FIRST_COST: Duration = Duration::from_millis(50);
/// One cost that is out of the ordinary counts as one part in so many of the next one.
const SMOOTHING: u32 = 4;
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
    cost: Cell<Cost>,
}

/// What one restart or probe costs lately.
#[derive(Clone, Copy, Debug)]
struct Cost {
    of_one: Duration,
    /// What all of them had used when the last one began.
    used: Duration,
}

#[derive(Clone, Copy, Debug)]
struct CpuAccount {
    left: Duration,
    debt: Duration,
    /// What those under way have paid before they use it.
    advance: Duration,
    at: Instant,
    used: Duration,
}

impl Throttle {
    pub(crate) fn new(reaper: Reaper) -> Self {
        let account = CpuAccount {
            left: BURST,
            debt: Duration::ZERO,
            advance: Duration::ZERO,
            at: Instant::now(),
            used: reaper.processor_time(),
        };
        let cost = Cost { of_one: FIRST_COST, used: used_by_paced(&reaper) };
        Self { reaper, slots: Semaphore::new(AT_A_TIME), left: Cell::new(account), cost: Cell::new(cost) }
    }

    /// Waits until a restart or a probe may run, or until its container's caller is in a hurry: what ends or deletes it waits for
    /// what waits here. It counts as running until the answer is dropped.
    ///
    /// In a stop it waits as long. A restart that is not wanted any more is given up then (T10), so no stop waits for it.
    pub(crate) async fn acquire(&self, hurry: &Notify) -> Option<SemaphorePermit<'_>> {
        let hurried = hurry.notified();
        let wait = async {
            let slot = self.slots.acquire().await.ok();
            // Another one may have begun meanwhile, and pays first.
            loop {
                let until = self.due();
                if until <= Instant::now() {
                    break slot;
                }
                debug!(wait = ?(until - Instant::now()), "the pod's restarts and probes have used their share of a processor: this one waits");
                tokio::time::sleep_until(until).await;
            }
        };
        let slot = tokio::select! {
            slot = tokio::time::timeout(LONGEST, wait) => slot.unwrap_or_default(),
            () = hurried => None,
        };
        self.pay_in_advance();
        slot
    }

    /// What it is going to use counts now, by what the last ones have used: when that is known it is too late, as others have begun.
    fn pay_in_advance(&self) {
        let used = used_by_paced(&self.reaper);
        let Cost { of_one, used: before } = self.cost.get();
        let of_one = (of_one * (SMOOTHING - 1) + used.saturating_sub(before)) / SMOOTHING;
        self.cost.set(Cost { of_one, used });
        let under_way = AT_A_TIME.saturating_sub(self.slots.available_permits()).max(1);
        let mut account = self.account();
        let more = (of_one * u32::try_from(under_way).unwrap_or(1)).saturating_sub(account.advance);
        account.advance += more;
        account.pay(more);
        self.left.set(account);
    }

    /// When the debt is paid off.
    fn due(&self) -> Instant {
        let account = self.account();
        account.at + account.debt * SHARE
    }

    fn account(&self) -> CpuAccount {
        let (mut account, now, used) = (self.left.get(), Instant::now(), self.reaper.processor_time());
        let newly_used = used.saturating_sub(account.used);
        account.left += (now - account.at) / SHARE;
        account.pay(newly_used.saturating_sub(account.advance));
        account.left = account.left.min(BURST);
        account.advance = account.advance.saturating_sub(newly_used);
        (account.at, account.used) = (now, used);
        self.left.set(account);
        account
    }
}

impl CpuAccount {
    /// From what is left; the rest is a debt.
    fn pay(&mut self, cost: Duration) {
        let owed = self.debt + cost;
        (self.left, self.debt) = (self.left.saturating_sub(owed), owed.saturating_sub(self.left));
    }
}

/// By all restarts and probes so far, as far as they have ended.
fn used_by_paced(reaper: &Reaper) -> Duration {
    reaper.processor_time_for(Charge::Restarts) + reaper.processor_time_for(Charge::Probes)
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

    /// H7 of the hostile pods: four that wait for the same debt began at one moment, and each had used its own when that was known.
    #[test]
    fn each_pays_before_the_next_one_begins() {
        run(async {
            let (throttle, hurry) = (Throttle::new(Reaper::start().expect("a reaper")), Notify::new());
            let mut account = throttle.account();
            account.left = Duration::ZERO;
            throttle.left.set(account);
            let began = Instant::now();
            let mut turns = Vec::new();
            for _ in 0..3 {
                turns.push(throttle.acquire(&hurry).await.expect("a slot"));
            }
            let waited = began.elapsed();
            // The first has a debt of nothing, and nothing is used: the cost falls by a quarter each time.
            let least = FIRST_COST * 3 / 4 * SHARE;
            assert!(waited >= least, "{waited:?}");
            drop(turns);
            // What was paid is not paid once more.
            let account = throttle.account();
            assert!(account.advance >= FIRST_COST / 2, "{account:?}");
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
