//! Whether a hand is away: it waits in one call of the kernel, and does nothing else meanwhile.
//!
//! Owns the measure of its rounds, and the timer by which the head sees that one does not end. A round is one poll of all that is
//! ready. The hand sets the timer with the first round after a silence, and the head looks when that has passed: an idle hand wakes
//! no thread, and a busy one the head about once a second.

use std::fs::File;
use std::future::poll_fn;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::time::Instant;

use crate::async_file;
use crate::timerfd;

/// A round that takes longer is an absence. Another hand goes on within a second then.
const AWAY: Duration = Duration::from_millis(750);
/// The same while another hand is away: where many containers hold a lock at once, each costs so much of the second.
const AWAY_TOO: Duration = Duration::from_millis(40);
/// A timer that is set to nothing is not set.
const MOMENT: Duration = Duration::from_millis(1);
/// How often the head looks whether a hand that is away has come back.
const RECHECK: Duration = Duration::from_millis(100);
/// A thread that has run for so long, or waited for a processor, counts as away too.
const RUNS_ON: Duration = Duration::from_secs(4);

/// What has become of a hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It does not come out of a call.
    Away,
    /// It has come out of that.
    Back,
}

/// Whether a hand of the same pod is away, as all of them have it.
#[derive(Clone, Debug, Default)]
pub struct Alert(Arc<AtomicBool>);

impl Alert {
    /// One is away. Returns whether none was before.
    pub fn raise(&self) -> bool {
        !self.0.swap(true, Ordering::SeqCst)
    }

    /// None is away.
    pub fn end(&self) {
        self.0.store(false, Ordering::SeqCst);
    }

    fn limit_of_a_round(&self) -> Duration {
        if self.0.load(Ordering::SeqCst) { AWAY_TOO } else { AWAY }
    }
}

/// Whether a hand's thread is there, and what it does, also when nothing lives on it any more: it may wait in the kernel all the same.
#[derive(Clone, Debug, Default)]
pub struct Pulse(Arc<OnceLock<Arc<Attention>>>);

impl Pulse {
    pub(super) fn begin(&self, attention: Arc<Attention>) {
        // A hand has one thread.
        let _ = self.0.set(attention);
    }

    /// Whether the hand or its thread is there, besides the one who asks.
    pub fn is_there(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// For how long it has been away, if it is away.
    pub fn away_for(&self) -> Option<Duration> {
        self.0.get()?.away_for()
    }

    /// Its longest round.
    pub fn longest_away(&self) -> Duration {
        self.0.get().map(|attention| attention.longest()).unwrap_or_default()
    }
}

/// One hand's attention, as both threads have it.
#[derive(Debug)]
pub(super) struct Attention {
    epoch: Instant,
    /// When the round that goes on began, in microseconds since `epoch`; 0 between two.
    began: AtomicU64,
    /// The longest round, in microseconds.
    longest: AtomicU64,
    /// Whether the timer is set, or the head looks at it.
    is_watched: AtomicBool,
    /// Its number in both tables.
    timer: RawFd,
    alert: Alert,
}

impl Attention {
    /// A measure, and its timer in this thread's table.
    pub(super) fn open(alert: Alert) -> io::Result<(Arc<Self>, File)> {
        let timer = timerfd::make()?;
        let attention = Self {
            epoch: Instant::now(),
            began: AtomicU64::new(0),
            longest: AtomicU64::new(0),
            is_watched: AtomicBool::new(false),
            timer: timer.as_raw_fd(),
            alert,
        };
        Ok((Arc::new(attention), timer))
    }

    pub(super) fn timer(&self) -> RawFd {
        self.timer
    }

    fn now(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_micros()).unwrap_or(u64::MAX).max(1)
    }

    /// Wraps everything that the hand does: each poll is a round.
    pub(super) async fn measured<F: Future>(&self, all: F) -> F::Output {
        let mut all = pin!(all);
        poll_fn(|context| {
            self.begin();
            let result = all.as_mut().poll(context);
            self.end();
            result
        })
        .await
    }

    fn begin(&self) {
        self.began.store(self.now(), Ordering::SeqCst);
        self.be_watched();
    }

    fn end(&self) {
        let began = self.began.swap(0, Ordering::SeqCst);
        self.longest.fetch_max(self.now().saturating_sub(began), Ordering::Relaxed);
    }

    fn be_watched(&self) {
        if !self.is_watched.swap(true, Ordering::SeqCst) {
            self.set_timer(self.alert.limit_of_a_round());
        }
    }

    /// The head looks soon.
    pub(super) fn check_soon(&self) {
        self.is_watched.store(true, Ordering::SeqCst);
        self.set_timer(self.alert.limit_of_a_round());
    }

    fn set_timer(&self, time: Duration) {
        // SAFETY: both threads keep the number open for as long as they have this.
        let timer = unsafe { BorrowedFd::borrow_raw(self.timer) };
        // It fails for no number that is a timer's.
        let _ = timerfd::set(timer, time);
    }

    /// For how long the round has gone on that goes on now.
    fn round(&self) -> Option<Duration> {
        let began = self.began.load(Ordering::SeqCst);
        (began > 0).then(|| Duration::from_micros(self.now().saturating_sub(began)))
    }

    /// Since when it is away, if it is.
    pub(super) fn away_for(&self) -> Option<Duration> {
        self.round().filter(|time| *time >= AWAY)
    }

    pub(super) fn longest(&self) -> Duration {
        let longest = Duration::from_micros(self.longest.load(Ordering::Relaxed));
        longest.max(self.round().unwrap_or_default())
    }

    /// Nothing goes on. The hand sets the timer again.
    fn is_idle(&self) {
        self.is_watched.store(false, Ordering::SeqCst);
        // It may have begun a round just before.
        if self.began.load(Ordering::SeqCst) > 0 {
            self.be_watched();
        }
    }

    /// Watches the hand's thread from the head.
    pub(super) async fn watch(
        self: Arc<Self>,
        thread: libc::pid_t,
        timer: AsyncFd<File>,
        changed: impl Fn(Presence),
    ) {
        let mut away = None;
        while timer.async_io(Interest::READABLE, |mut timer| timer.read(&mut [0; 8])).await.is_ok() {
            let began = self.began.load(Ordering::SeqCst);
            if away.is_some_and(|away| away != began) {
                away = None;
                changed(Presence::Back);
            }
            match self.round() {
                None => self.is_idle(),
                Some(time) if time < self.alert.limit_of_a_round() => {
                    self.set_timer(self.alert.limit_of_a_round().saturating_sub(time).max(MOMENT));
                }
                Some(time) => {
                    if away.is_none() && (time >= RUNS_ON || !is_running(thread)) {
                        away = Some(began);
                        changed(Presence::Away);
                    }
                    self.set_timer(RECHECK);
                }
            }
        }
    }
}

/// Registers a timer for [`Attention::watch`].
pub(super) fn on_the_head(timer: File) -> io::Result<AsyncFd<File>> {
    async_file::register(timer, Interest::READABLE)
}

/// Whether the thread runs, or waits for a processor only. It is one of the shim's own.
fn is_running(thread: libc::pid_t) -> bool {
    let stat = std::fs::read(format!("/proc/self/task/{thread}/stat")).unwrap_or_default();
    let after_name = stat.iter().rposition(|byte| *byte == b')').and_then(|at| stat.get(at + 2));
    after_name == Some(&b'R')
}
