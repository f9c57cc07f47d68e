//! The only place that spawns processes and the only place that waits for them.
//!
//! Owns the table from a pid to the receiver of its exit. Every exit is recorded before the pid is freed (peek with
//! WNOWAIT, record, then reap), so an exit is never lost, never delivered twice and never attributed to a later process
//! of the same pid (`reaping`). Nothing else in the program may call a wait function. The release of a container's process is another
//! thread's (`release`): it can be long.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::io;
use std::os::unix::process::CommandExt;
use std::pin::Pin;
use std::process::Command;
use std::rc::{Rc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill};
use nix::unistd::Pid;
use threads::busy;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{Notify, oneshot};
use tokio::task::yield_now;

use crate::process::{self, Process};

mod children;
mod pace;
mod reaping;
mod release;
mod seen;
mod start;
#[cfg(test)]
mod tests;
mod traced;

use self::release::Releases;
pub use self::seen::Exit;
pub use self::seen::is_our_child;
pub use self::start::ExecReport;

/// The exit of one process, as a future. It resolves once; dropping it forgets the exit.
#[derive(Debug)]
pub struct ExitWatch(oneshot::Receiver<Exit>);

impl Future for ExitWatch {
    type Output = Exit;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Exit> {
        match Pin::new(&mut self.0).poll(context) {
            Poll::Ready(Ok(exit)) => Poll::Ready(exit),
            // The reaper's task is gone, which happens only when the whole tokio runtime is being dropped.
            Poll::Ready(Err(_)) | Poll::Pending => Poll::Pending,
        }
    }
}

/// A process that the shim spawned itself.
#[derive(Debug)]
pub struct Child {
    /// The process.
    pub process: Process,
    /// Its exit.
    pub exit: ExitWatch,
    /// Whether it could execute its program.
    pub report: ExecReport,
}

/// Handle of the reaper; clones share one table.
#[derive(Debug, Clone)]
pub struct Reaper {
    table: Rc<RefCell<Table>>,
    releases: Rc<Releases>,
    charge: Charge,
}

/// What a process is started for, to account for its processor time.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Charge {
    /// Requests of callers, and everything that is not one of the others.
    #[default]
    Requests,
    /// Probes of gates.
    Probes,
    /// Hooks.
    Hooks,
    /// Restarts in place.
    Restarts,
}

#[derive(Debug, Default)]
struct Table {
    watched: BTreeMap<Pid, oneshot::Sender<Exit>>,
    early_exits: BTreeMap<Pid, EarlyExit>,
    /// Those whose exit is known and whose pid is not free yet.
    recorded: BTreeSet<Pid>,
    /// How many keep these numbers.
    holds: usize,
    /// A subscription or a hold has ended.
    let_go: Rc<Notify>,
    subscriptions: BTreeSet<u64>,
    last_subscription: u64,
    /// The processes that the shim has started itself; then, per charge, the processor time of those that have ended.
    own: BTreeMap<Pid, Charge>,
    permit: Weak<SpawnPermit>,
    processor_time: BTreeMap<Charge, Duration>,
}

/// An exit without a watcher, and the processor time of the process.
#[derive(Debug)]
struct EarlyExit {
    exit: Exit,
    used: Duration,
}

/// The right to spawn in this round of the thread.
#[derive(Debug)]
pub struct SpawnPermit;

/// While a subscription lives, the exits of processes without a watcher are kept for [`Reaper::adopt`].
///
/// Take it before running a command that leaves a process behind (`create`, `exec --detach`): the
/// container may exit before its pid is known (containerd issue 7111).
#[derive(Debug)]
pub struct ExitSubscription {
    table: Rc<RefCell<Table>>,
    number: u64,
}

impl Drop for ExitSubscription {
    fn drop(&mut self) {
        let mut table = self.table.borrow_mut();
        table.subscriptions.remove(&self.number);
        if table.subscriptions.is_empty() {
            table.early_exits.clear();
        }
        table.let_go.notify_waiters();
    }
}

/// Keeps the numbers of processes that have ended, see [`Reaper::hold_pids`].
#[derive(Debug)]
pub struct HeldPids(Rc<RefCell<Table>>);

impl Drop for HeldPids {
    fn drop(&mut self) {
        let mut table = self.0.borrow_mut();
        table.holds -= 1;
        table.let_go.notify_waiters();
    }
}

impl Reaper {
    /// Makes this process the subreaper of its descendants and starts reaping on the current `LocalSet`.
    ///
    /// Call once per program, inside a `LocalSet` of a current-thread runtime with IO enabled.
    ///
    /// # Errors
    /// The kernel's: this process cannot be a subreaper, or has no descriptor left for the signal.
    pub fn start() -> io::Result<Self> {
        // `runtime create` exits and leaves the container's init to its nearest subreaper (CONTRACT §8).
        nix::sys::prctl::set_child_subreaper(true)?;
        // Register the signal before the first look, so that no exit falls between the two.
        let signals = signal(SignalKind::child())?;
        let reaper = Self { table: Rc::default(), releases: Rc::default(), charge: Charge::default() };
        tokio::task::spawn_local(reaper.clone().run(signals));
        Ok(reaper)
    }

    /// Waits for the next round of the thread in which no other caller spawns. Keep the permit until the spawn is done.
    ///
    /// A spawn keeps the thread for the fork, which the kernel lets wait while any process is moved between control groups. Ten
    /// probes of one moment would keep it ten times as long; this way the shim serves its pod between them.
    pub async fn spawn_permit(&self) -> Rc<SpawnPermit> {
        let permit = Rc::new(SpawnPermit);
        let ours = Rc::downgrade(&permit);
        while !self.table.borrow().permit.ptr_eq(&ours) {
            if self.table.borrow().permit.strong_count() == 0 {
                self.table.borrow_mut().permit = ours.clone();
            }
            yield_now().await;
        }
        permit
    }

    /// Starts `command` and registers it. There is no await between the two, so no exit can be missed. When this returns, the child may
    /// not have executed its program yet; if it cannot, it ends, and its report says why.
    ///
    /// The child dies with the shim. It gets default signal dispositions, an empty signal mask, transparent huge pages
    /// and the limit of open files that the shim was started with, whatever the shim has now. The child's own children
    /// (containers) do not die with the shim: the kernel clears the parent-death signal on fork.
    ///
    /// # Errors
    /// The kernel's: no process or descriptor is left.
    pub fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        let shim = nix::unistd::getpid();
        // SAFETY: the closure runs between fork and exec and makes only async-signal-safe calls.
        unsafe { command.pre_exec(move || prepare_child(shim)) };
        let (pid, report) = busy::during("the start of a process", || start::start(command))?;
        // invariant for the pid: nothing was awaited since the fork, so the pid has not been reaped.
        let process = Process::open(pid).inspect_err(|_| {
            // Without a pidfd the child cannot be controlled; the reap loop drops its exit.
            let _ = kill(pid, Signal::SIGKILL);
        })?;
        Ok(Child { process, exit: self.register_own(pid), report })
    }

    /// Processor time of this shim's commands and helpers that have ended, with that of the processes they waited for
    /// themselves, and of execs until they were adopted. Containers' processes do not count.
    pub fn processor_time(&self) -> Duration {
        self.table.borrow().processor_time.values().sum()
    }

    /// The part of it that was charged to `charge`.
    pub fn processor_time_for(&self, charge: Charge) -> Duration {
        self.table.borrow().processor_time.get(&charge).copied().unwrap_or_default()
    }

    /// While this lives, the number of a process that the shim has not started by [`Self::spawn`] is not freed. Its exit is delivered all
    /// the same.
    pub fn hold_pids(&self) -> HeldPids {
        self.table.borrow_mut().holds += 1;
        HeldPids(self.table.clone())
    }

    /// This thread has used so much for what this handle's processes are started for.
    pub fn spend(&self, used: Duration) {
        self.table.borrow_mut().charge(self.charge, used);
    }

    /// A handle whose processes are all charged to `charge`.
    pub fn charged_to(&self, charge: Charge) -> Self {
        Self { charge, ..self.clone() }
    }

    /// Keeps exits of unknown processes until the subscription is dropped.
    pub fn subscribe(&self) -> ExitSubscription {
        let mut table = self.table.borrow_mut();
        table.last_subscription += 1;
        let number = table.last_subscription;
        table.subscriptions.insert(number);
        ExitSubscription { table: self.table.clone(), number }
    }

    /// Whether the pid is a watched process of the shim whose exit has not been delivered yet.
    pub fn is_watched(&self, pid: Pid) -> bool {
        self.table.borrow().watched.contains_key(&pid)
    }

    /// Those of these processes that are the shim's own children and that no call has adopted, each pinned by a pidfd.
    pub fn unclaimed(&self, pids: BTreeSet<Pid>) -> Vec<Process> {
        let ours = pids.into_iter().filter(|pid| !self.is_watched(*pid) && is_our_child(*pid));
        ours.filter_map(|pid| Process::open(pid).ok()).collect()
    }

    /// Waits until every subscription that is out now has been dropped. By then, each process that the holders' commands have
    /// left behind so far has been adopted, or belongs to no call. Drop your own subscription first: two waiters would wait
    /// for each other.
    pub async fn wait_for_subscriptions(&self) {
        let last = self.table.borrow().last_subscription;
        self.let_go_of(|table| table.subscriptions.first().is_none_or(|oldest| *oldest > last)).await;
    }

    /// Waits until nothing keeps that from being so.
    async fn let_go_of(&self, is_so: impl Fn(&Table) -> bool) {
        let let_go = self.table.borrow().let_go.clone();
        while !is_so(&self.table.borrow()) {
            let_go.notified().await;
        }
    }

    /// Adopts a descendant whose pid a runtime reported, even if it has exited since `subscription` was taken.
    ///
    /// # Errors
    /// `NotFound` if there is no such process and no recorded exit, and `InvalidInput` if the process is not the shim's
    /// child or is watched already.
    pub fn adopt(&self, subscription: &ExitSubscription, pid: Pid) -> io::Result<(Process, ExitWatch)> {
        debug_assert!(Rc::ptr_eq(&subscription.table, &self.table), "a subscription of another reaper");
        if self.is_watched(pid) {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("process {pid} already belongs to another container or exec"),
            ));
        }
        match Process::open(pid) {
            // Its exit is known; only its pid is not free yet.
            Ok(process) if self.table.borrow().recorded.contains(&pid) && !process.is_running() => {
                self.adopt_ended(pid)
            }
            Ok(process) => {
                if !is_our_child(pid) {
                    return Err(io::Error::new(
                        io::ErrorKind::InvalidInput,
                        format!("process {pid} is not a child of the shim"),
                    ));
                }
                // An early exit under a pid that exists again belongs to an orphan, not to this process.
                self.table.borrow_mut().early_exits.remove(&pid);
                Ok((process, self.register(pid)))
            }
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => self.adopt_ended(pid),
            Err(error) => Err(error),
        }
    }

    fn adopt_ended(&self, pid: Pid) -> io::Result<(Process, ExitWatch)> {
        let early = self.table.borrow_mut().early_exits.remove(&pid);
        let early = early
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("there is no process {pid}")))?;
        let (sender, receiver) = oneshot::channel();
        let _ = sender.send(early.exit);
        Ok((Process::exited(pid), ExitWatch(receiver)))
    }

    /// The same for an exec, whose processor time until now counts as its command's. runc 1.1 to 1.3 move its process into the
    /// container's cgroup only after runc's init has begun there, which is an eighth of what an exec takes.
    ///
    /// # Errors
    /// As of [`Self::adopt`].
    pub fn adopt_exec(&self, subscription: &ExitSubscription, pid: Pid) -> io::Result<(Process, ExitWatch)> {
        let early = || self.table.borrow().early_exits.get(&pid).map(|early| early.used);
        let used = process::processor_time_of(pid).or_else(early).unwrap_or_default();
        let adopted = self.adopt(subscription, pid)?;
        self.table.borrow_mut().charge(self.charge, used);
        Ok(adopted)
    }

    /// Registers a child that was just made: nothing may have been awaited since.
    pub(crate) fn register_own(&self, pid: Pid) -> ExitWatch {
        self.table.borrow_mut().own.insert(pid, self.charge);
        self.register(pid)
    }

    fn register(&self, pid: Pid) -> ExitWatch {
        let (sender, receiver) = oneshot::channel();
        self.table.borrow_mut().watched.insert(pid, sender);
        ExitWatch(receiver)
    }
}

impl Table {
    fn charge(&mut self, charge: Charge, used: Duration) {
        *self.processor_time.entry(charge).or_default() += used;
    }
}

/// Prepares a child: called between fork and exec, or after a fork without an exec.
pub(crate) fn prepare_child(shim: Pid) -> io::Result<()> {
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    if nix::unistd::getppid() != shim {
        // The shim died between fork and prctl, so the signal will never come.
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    for signal in 1..=libc::SIGRTMAX() {
        // The shim ignores SIGPIPE, and an ignored signal stays ignored across exec. Fails for SIGKILL and SIGSTOP,
        // which cannot be ignored, and for the two signals that libc reserves.
        // SAFETY: restoring the default action installs no handler.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    nix::sys::signal::sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
    // Undoes process::disable_huge_pages, which outlives exec and would slow the containers down.
    process::restore_huge_pages()?;
    process::restore_open_files()
}
