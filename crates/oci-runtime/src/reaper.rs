//! The only place that spawns processes and the only place that waits for them.
//!
//! Owns the table from a pid to the receiver of its exit. Every exit is recorded before the pid is freed (peek with
//! WNOWAIT, record, then reap), so an exit is never lost, never delivered twice and never attributed to a later process
//! of the same pid. Nothing else in the program may call a wait function. The release of a container's process is another thread's
//! (`release`): it can be long.

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    future::Future,
    io,
    os::unix::process::CommandExt,
    pin::{Pin, pin},
    process::Command,
    rc::{Rc, Weak},
    task::{Context, Poll},
    time::{Duration, SystemTime},
};

use nix::{
    sys::signal::{SigSet, SigmaskHow, Signal},
    unistd::Pid,
};
use tokio::{
    signal::unix::{Signal as SignalStream, SignalKind, signal},
    sync::oneshot,
    task::yield_now,
    time::Instant,
};
use tracing::{debug, error};

use crate::{
    busy,
    process::{self, Process},
};

mod children;
mod pace;
mod release;
#[cfg(test)]
mod tests;
mod traced;

use self::{
    children::Look,
    pace::{Pace, REST, Step},
    release::Releases,
};

/// How often a waiter checks the subscriptions of others. Only the undoing of a failed call waits for them.
const SUBSCRIPTION_POLL: Duration = Duration::from_millis(20);

/// How many processes that are nothing to podshim are reaped at a time.
const STRANGERS_AT_A_TIME: usize = 1024;

/// How and when a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exit {
    /// The exit status as containerd reports it: the process's own code, or 128 + the signal.
    pub code: u8,
    /// The signal that ended it, if one did.
    pub signal: Option<u8>,
    /// Wall clock time at which the shim saw the exit.
    pub at: SystemTime,
}

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
pub(crate) struct SpawnPermit;

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
    }
}

impl Reaper {
    /// Makes this process the subreaper of its descendants and starts reaping on the current `LocalSet`.
    ///
    /// Call once per program, inside a `LocalSet` of a current-thread runtime with IO enabled.
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
    /// A spawn keeps the thread until the child has exec'd, and on a busy node the child waits for a processor first. Ten
    /// probes of one moment would keep it ten times as long; this way the shim serves its pod between them.
    pub(crate) async fn spawn_permit(&self) -> Rc<SpawnPermit> {
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

    /// Starts `command` and registers it. There is no await between the two, so no exit can be missed.
    ///
    /// The child dies with the shim. It gets default signal dispositions, an empty signal mask, transparent huge pages
    /// and the limit of open files that the shim was started with, whatever the shim has now. The child's own children
    /// (containers) do not die with the shim: the kernel clears the parent-death signal on fork.
    pub fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        let shim = nix::unistd::getpid();
        // SAFETY: the closure runs between fork and exec and makes only async-signal-safe calls.
        unsafe { command.pre_exec(move || prepare_child(shim)) };
        #[expect(clippy::disallowed_methods, reason = "the reaper is the owner of every child")]
        let child = busy::during("the start of a process", || command.spawn())?;
        let pid = Pid::from_raw(child.id() as libc::pid_t);
        // invariant for the pid: nothing was awaited since the fork, so the pid has not been reaped.
        let process = match Process::open(pid) {
            Ok(process) => process,
            Err(error) => {
                let mut child = child;
                // Without a pidfd the child cannot be controlled; the reap loop drops its exit.
                let _ = child.kill();
                return Err(error);
            }
        };
        Ok(Child { process, exit: self.register_own(pid) })
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

    /// A handle whose processes are all charged to `charge`.
    pub fn charged_to(&self, charge: Charge) -> Self {
        Self { table: self.table.clone(), releases: self.releases.clone(), charge }
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
    pub(crate) fn is_watched(&self, pid: Pid) -> bool {
        self.table.borrow().watched.contains_key(&pid)
    }

    /// Those of these processes that are the shim's own children and that no call has adopted, each pinned by a pidfd.
    pub(crate) fn unclaimed(&self, pids: BTreeSet<Pid>) -> Vec<Process> {
        let ours = pids.into_iter().filter(|pid| !self.is_watched(*pid) && is_our_child(*pid));
        ours.filter_map(|pid| Process::open(pid).ok()).collect()
    }

    /// Waits until every subscription that is out now has been dropped. By then, each process that the holders' commands have
    /// left behind so far has been adopted, or belongs to no call. Drop your own subscription first: two waiters would wait
    /// for each other.
    pub(crate) async fn wait_for_subscriptions(&self) {
        let last = self.table.borrow().last_subscription;
        while self.table.borrow().subscriptions.first().is_some_and(|oldest| *oldest <= last) {
            tokio::time::sleep(SUBSCRIPTION_POLL).await;
        }
    }

    /// Adopts a descendant whose pid a runtime reported, even if it has exited since `subscription` was taken.
    ///
    /// Fails with `NotFound` if there is no such process and no recorded exit, and with `InvalidInput` if the process
    /// is not the shim's child or is watched already.
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

    async fn run(self, mut signals: SignalStream) {
        let mut pace = Pace::default();
        loop {
            self.reap_all(&mut signals, &mut pace).await;
            // SIGCHLDs coalesce: one wake-up may stand for many exits, so reap_all takes them all.
            if signals.recv().await.is_none() {
                return;
            }
        }
    }

    async fn reap_all(&self, signals: &mut SignalStream, pace: &mut Pace) {
        let mut was_known = false;
        loop {
            let began = Instant::now();
            let found = match busy::during("exits", || self.record_next()) {
                Ok(Some(found)) => found,
                Ok(None) if pace.is_deaf() => {
                    pace.rest().await;
                    continue;
                }
                Ok(None) => {
                    // Nothing has ended: a child has stopped or goes on. Without an end a container could keep the thread at that.
                    if !was_known {
                        self.rest(began, signals, pace).await;
                    }
                    match pace.is_deaf() {
                        true => continue,
                        false => return,
                    }
                }
                Err(error) => {
                    error!(%error, "waitid failed: the shim looks for exits again at the next SIGCHLD");
                    *pace = Pace::default();
                    return;
                }
            };
            match found {
                Found::Dead(dead) => {
                    let released = match dead.whose {
                        Whose::Unknown => self.release_strangers(dead.pid, signals, pace).await,
                        Whose::Own | Whose::Callers => self.release(dead, signals, pace).await,
                    };
                    if let Err(error) = released {
                        // Continuing would spin: the same zombie comes first again.
                        error!(pid = %dead.pid, %error, "cannot reap an exited process: the shim tries again at the next SIGCHLD");
                        *pace = Pace::default();
                        return;
                    }
                    match dead.whose {
                        Whose::Unknown => self.rest(began, signals, pace).await,
                        Whose::Own | Whose::Callers => was_known = true,
                    }
                }
                Found::Traced(pid) => {
                    if let Err(error) = busy::during("exits", || traced::let_go(pid)) {
                        // As a rule it has just been killed.
                        debug!(%pid, %error, "cannot let a traced process go");
                    }
                    self.rest(began, signals, pace).await;
                }
            }
        }
    }

    /// After what is nothing to podshim. Whether a process that a caller waits for has ended is looked at one by one, as such a child may
    /// come first in each look at all of them.
    async fn rest(&self, began: Instant, signals: &mut SignalStream, pace: &mut Pace) {
        if pace.count(began).await == Step::AtOnce {
            return;
        }
        for dead in busy::during("exits", || self.record_watched()) {
            if let Err(error) = self.release(dead, signals, pace).await {
                error!(pid = %dead.pid, %error, "cannot reap an exited process: the shim tries again at the next SIGCHLD");
            }
        }
    }

    /// The next child that the kernel shows.
    fn record_next(&self) -> io::Result<Option<Found>> {
        Ok(match peek(libc::P_ALL, 0)? {
            None => None,
            Some(Seen::Traced(pid)) => Some(Found::Traced(pid)),
            Some(Seen::Exited(pid, exit, used)) => Some(Found::Dead(self.record(pid, exit, used))),
        })
    }

    async fn release(&self, dead: Dead, signals: &mut SignalStream, pace: &mut Pace) -> io::Result<()> {
        match dead.whose {
            Whose::Own => {
                let released = busy::during("exits", || release::now(dead.pid));
                self.table.borrow_mut().recorded.remove(&dead.pid);
                released
            }
            Whose::Callers | Whose::Unknown => self.release_beside(vec![dead.pid], signals, pace).await,
        }
    }

    /// Many at a time: one by one, each would cost the shim as much as it has cost its container.
    async fn release_strangers(
        &self,
        first: Pid,
        signals: &mut SignalStream,
        pace: &mut Pace,
    ) -> io::Result<()> {
        let mut pids = vec![first];
        busy::during("exits", || {
            children::of_this_thread(|pid| {
                let table = self.table.borrow();
                let is_known = table.watched.contains_key(&pid) || table.recorded.contains(&pid);
                drop(table);
                if !is_known
                    && let Ok(Some(Seen::Exited(_, exit, used))) =
                        peek(libc::P_PID, pid.as_raw().unsigned_abs())
                {
                    self.record(pid, exit, used);
                    pids.push(pid);
                }
                if pids.len() < STRANGERS_AT_A_TIME { Look::On } else { Look::Enough }
            });
        });
        debug!(count = pids.len(), %first, "reaped orphans");
        self.release_beside(pids, signals, pace).await
    }

    /// Frees pids of a container's processes, which may take seconds (H3). It hides other dead processes from a look at all of them
    /// meanwhile; those that a caller waits for are looked at one by one: at once, as one SIGCHLD may stand for two exits, and then at
    /// each further one.
    async fn release_beside(
        &self,
        pids: Vec<Pid>,
        signals: &mut SignalStream,
        pace: &mut Pace,
    ) -> io::Result<()> {
        let released = self.release_on_thread(pids.clone(), signals, pace).await;
        let mut table = self.table.borrow_mut();
        for pid in pids {
            table.recorded.remove(&pid);
        }
        released
    }

    async fn release_on_thread(
        &self,
        pids: Vec<Pid>,
        signals: &mut SignalStream,
        pace: &mut Pace,
    ) -> io::Result<()> {
        let mut released = pin!(self.releases.release(pids));
        loop {
            let began = Instant::now();
            busy::during("exits", || self.record_watched());
            let looked = began.elapsed();
            tokio::select! {
                biased;
                result = &mut released => return result,
                () = tokio::time::sleep(REST), if pace.is_deaf() => {}
                signal = signals.recv() => match signal {
                    Some(()) => drop(pace.count(Instant::now() - looked).await),
                    None => return released.await,
                },
            }
        }
    }

    /// Those that have ended, and not been recorded before.
    fn record_watched(&self) -> Vec<Dead> {
        let watched: Vec<Pid> = self.table.borrow().watched.keys().copied().collect();
        let ended =
            watched.into_iter().filter_map(|pid| match peek(libc::P_PID, pid.as_raw().unsigned_abs()) {
                Ok(Some(Seen::Exited(_, exit, used))) => Some(self.record(pid, exit, used)),
                _ => None,
            });
        ended.collect()
    }

    fn record(&self, pid: Pid, exit: Exit, used: Duration) -> Dead {
        let mut table = self.table.borrow_mut();
        let mut dead = Dead { pid, whose: Whose::Callers };
        if !table.recorded.insert(pid) {
            return dead;
        }
        if let Some(charge) = table.own.remove(&pid) {
            table.charge(charge, used);
            dead.whose = Whose::Own;
        }
        match table.watched.remove(&pid) {
            // The watcher may have been dropped; that is no error.
            Some(watcher) => drop(watcher.send(exit)),
            None if !table.subscriptions.is_empty() => {
                table.early_exits.insert(pid, EarlyExit { exit, used });
                dead.whose = Whose::Unknown;
            }
            None => dead.whose = Whose::Unknown,
        }
        dead
    }
}

/// What a look at the children has found.
#[derive(Debug, Clone, Copy)]
enum Found {
    Dead(Dead),
    Traced(Pid),
}

/// A process whose exit is recorded and whose pid is not free.
#[derive(Debug, Clone, Copy)]
struct Dead {
    pid: Pid,
    whose: Whose,
}

/// Whose process it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Whose {
    /// One of the shim's own commands, which no container gives the kernel work with.
    Own,
    /// A container's, whose exit a caller waits for.
    Callers,
    /// A container's, as far as is known by now.
    Unknown,
}

impl Table {
    fn charge(&mut self, charge: Charge, used: Duration) {
        *self.processor_time.entry(charge).or_default() += used;
    }
}

/// A child that waitid(2) shows.
enum Seen {
    /// With the processor time that it has used, with that of the processes it waited for itself.
    Exited(Pid, Exit, Duration),
    /// It has stopped because it asked its parent to trace it: that is shown whatever the parent waits for.
    Traced(Pid),
}

/// Finds an exited child and leaves it a zombie, so that its pid stays taken until the exit is recorded.
fn peek(which: libc::idtype_t, id: u32) -> io::Result<Option<Seen>> {
    // nix's waitid fails on real-time signals, which have no name in its Signal enum: hence libc.
    // SAFETY: siginfo_t and rusage are plain data for which all zeroes is a valid value.
    let (mut info, mut usage): (libc::siginfo_t, libc::rusage) = unsafe { std::mem::zeroed() };
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // The raw system call, because libc's function leaves the usage out.
    // SAFETY: both are valid for the kernel to fill.
    let found = unsafe { libc::syscall(libc::SYS_waitid, which, id, &raw mut info, flags, &raw mut usage) };
    if found < 0 {
        return match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ECHILD) => Ok(None),
            error => Err(error),
        };
    }
    // SAFETY: waitid succeeded, so the child fields are set, or all zero when no child has exited.
    let (pid, status) = unsafe { (info.si_pid(), info.si_status()) };
    if pid == 0 {
        return Ok(None);
    }
    #[expect(clippy::disallowed_methods, reason = "the reaper is where an exit gets its time")]
    let at = SystemTime::now();
    // waitid gives the bare signal number or exit code (0 to 255): never more than 8 bits.
    let status = status as u8;
    let exit = match info.si_code {
        libc::CLD_KILLED | libc::CLD_DUMPED => Exit { code: 128 + status, signal: Some(status), at },
        libc::CLD_EXITED => Exit { code: status, signal: None, at },
        _ => return Ok(Some(Seen::Traced(Pid::from_raw(pid)))),
    };
    let time = |time: libc::timeval| {
        Duration::new(time.tv_sec.unsigned_abs(), 0) + Duration::from_micros(time.tv_usec.unsigned_abs())
    };
    Ok(Some(Seen::Exited(Pid::from_raw(pid), exit, time(usage.ru_utime) + time(usage.ru_stime))))
}

/// Whether it is a child of the shim, alive or not yet reaped: until the next await its number is no other process's.
pub(crate) fn is_our_child(pid: Pid) -> bool {
    // SAFETY: as in peek().
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: `info` is a valid siginfo_t for the kernel to fill; WNOWAIT leaves the child as it is.
    unsafe { libc::waitid(libc::P_PID, pid.as_raw() as libc::id_t, &mut info, flags) == 0 }
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
    // Undoes process::disable_huge_pages, which outlives exec and would slow the containers down. With a pre_exec
    // closure the standard library really forks, so the shim's own memory keeps its setting.
    process::restore_huge_pages()?;
    process::restore_open_files()
}
