//! A process as a value that always means the same process: pid and pidfd travel together.
//!
//! Owns signal delivery and the question "has the user program been exec'd" (rule U1), and two settings of the shim's
//! own process (huge pages, open files). It never waits for a process: exits come from the
//! [`Reaper`](crate::reaper::Reaper) alone.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags};
use nix::sched::{CloneFlags, setns};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use thiserror::Error;
use threads::async_file::{poll_now, register};
use threads::at_once;
use tokio::io::Interest;
use tokio::time::Instant;

/// First pause between two reads of `/proc/<pid>/comm`: opening a gate should cost only a few milliseconds.
const EXEC_POLL_FIRST: Duration = Duration::from_millis(1);
/// Longest pause between two reads, for runtimes whose start hooks take long.
const EXEC_POLL_LONGEST: Duration = Duration::from_millis(20);

/// A signal number that can be sent to a process: 1 to 64, real-time signals included.
///
/// containerd's Kill request carries the number, so an enum of the named signals would not be enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SignalNumber(u8);

/// A number that is not a Linux signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{0} is not a signal number (1 to 64)")]
pub struct InvalidSignalNumber(pub u32);

impl SignalNumber {
    /// SIGKILL.
    pub const KILL: Self = Self(libc::SIGKILL as u8);
    /// SIGTERM.
    pub const TERM: Self = Self(libc::SIGTERM as u8);

    /// Accepts 1 to 64, the numbers Linux knows.
    ///
    /// # Errors
    /// Any other number.
    pub fn new(number: u32) -> Result<Self, InvalidSignalNumber> {
        u8::try_from(number)
            .ok()
            .filter(|number| (1..=64).contains(number))
            .map(Self)
            .ok_or(InvalidSignalNumber(number))
    }

    /// The number as the kernel takes it.
    pub fn as_raw(self) -> libc::c_int {
        libc::c_int::from(self.0)
    }
}

impl TryFrom<u32> for SignalNumber {
    type Error = InvalidSignalNumber;

    fn try_from(number: u32) -> Result<Self, Self::Error> {
        Self::new(number)
    }
}

impl fmt::Display for SignalNumber {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(formatter)
    }
}

/// What happened to a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalDelivery {
    /// The kernel accepted the signal for the process (which may be a zombie the reaper has not seen yet).
    Delivered,
    /// The process had exited and was reaped: nothing received the signal.
    AlreadyGone,
}

/// The name that the kernel gives a process at an `execve`, to be compared before and after one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExecutableIdentity([u8; NAME_LONGEST]);

/// `TASK_COMM_LEN` of linux/sched.h.
const NAME_LONGEST: usize = 16;

/// How a wait for the user program ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecOutcome {
    /// The process now executes something other than the runtime's own init (rule U1).
    Executed,
    /// The process ended before the change was seen. It may or may not have run its program; its exit shows which.
    Exited,
    /// The deadline passed and the process is still the runtime's init.
    TimedOut,
}

/// Turns transparent huge pages off for the calling process: a single one would double a shim's memory.
///
/// The setting is inherited through fork and exec; [`Reaper::spawn`](crate::reaper::Reaper::spawn) undoes it for every
/// child.
///
/// # Errors
/// The kernel's.
pub fn disable_huge_pages() -> io::Result<()> {
    nix::sys::prctl::set_thp_disable(true)?;
    HUGE_PAGES_DISABLED.store(true, Ordering::Relaxed);
    Ok(())
}

/// Whether [`disable_huge_pages`] has done so. qemu's user emulation refuses it: there a child that undid it would not start.
static HUGE_PAGES_DISABLED: AtomicBool = AtomicBool::new(false);

/// Runs in a child between fork and exec, so it makes only async-signal-safe calls.
pub(crate) fn restore_huge_pages() -> io::Result<()> {
    if HUGE_PAGES_DISABLED.load(Ordering::Relaxed) {
        nix::sys::prctl::set_thp_disable(false)?;
    }
    Ok(())
}

/// The processor time that this process has used, without its children.
pub fn processor_time() -> Duration {
    let used = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID);
    used.map(Duration::from).unwrap_or_default()
}

/// The processor time that the calling thread has used.
pub fn thread_processor_time() -> Duration {
    let used = clock_gettime(ClockId::CLOCK_THREAD_CPUTIME_ID);
    used.map(Duration::from).unwrap_or_default()
}

/// The same of another process; `None` if there is no such process.
pub(crate) fn processor_time_of(pid: Pid) -> Option<Duration> {
    ClockId::pid_cpu_clock_id(pid).and_then(clock_gettime).map(Duration::from).ok()
}

/// The limit that this process had before [`use_all_open_files`].
static OPEN_FILES_BEFORE: OnceLock<libc::rlimit> = OnceLock::new();

/// Raises this process's limit of open files to its hard limit, as every Go program does. A container takes
/// fourteen files of the hand and some ten of the head, so the usual 1,024 would be enough for seventy containers only.
///
/// [`Reaper::spawn`](crate::reaper::Reaper::spawn) undoes it for every child: a program that uses `select` must not
/// inherit a higher limit.
///
/// # Errors
/// The kernel's.
pub fn use_all_open_files() -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one rlimit.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let before = *OPEN_FILES_BEFORE.get_or_init(|| limit);
    set_open_files(&libc::rlimit { rlim_cur: before.rlim_max, ..before })
}

/// That limit; `None` if this process has not raised it.
pub fn open_files_before() -> Option<libc::rlimit> {
    OPEN_FILES_BEFORE.get().copied()
}

/// Runs in a child between fork and exec, so it makes only async-signal-safe calls.
pub(crate) fn restore_open_files() -> io::Result<()> {
    OPEN_FILES_BEFORE.get().map_or(Ok(()), set_open_files)
}

fn set_open_files(limit: &libc::rlimit) -> io::Result<()> {
    // SAFETY: the kernel reads one rlimit.
    match unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, limit) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A child (or adopted grandchild) with the pidfd that means this process, never a later one with the same pid.
#[derive(Debug)]
pub struct Process {
    pid: Pid,
    // None: it was reaped before a pidfd could be opened. Its Exit is already on its way.
    pidfd: Option<OwnedFd>,
}

impl Process {
    /// Opens the pidfd of a process that exists, at least as a zombie.
    ///
    /// Only for the shim's children is the result certain: the reaper alone waits for them, so their pid cannot be
    /// reused between learning it and this call. For any other pid, it is the process that has that pid now.
    ///
    /// # Errors
    /// ESRCH if the process has been reaped.
    pub fn open(pid: Pid) -> io::Result<Self> {
        // SAFETY: pidfd_open takes a pid and flags and touches no memory of ours.
        let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) };
        if descriptor < 0 {
            return Err(match io::Error::last_os_error() {
                // Seen on Linux 6.1: the number is still taken, as the session or group of a child that the process
                // left behind.
                error if error.raw_os_error() == Some(libc::EINVAL) => {
                    io::Error::from_raw_os_error(libc::ESRCH)
                }
                error => error,
            });
        }
        // SAFETY: the kernel has just returned this descriptor (always CLOEXEC) to this call alone.
        let pidfd = unsafe { OwnedFd::from_raw_fd(descriptor as libc::c_int) };
        Ok(Self { pid, pidfd: Some(pidfd) })
    }

    /// A process whose pidfd the kernel sent together with its pid.
    pub fn of_pidfd(pid: Pid, pidfd: OwnedFd) -> Self {
        Self { pid, pidfd: Some(pidfd) }
    }

    /// A process whose exit has been recorded: it needs no pidfd any more, or never had one.
    pub fn exited(pid: Pid) -> Self {
        Self { pid, pidfd: None }
    }

    /// The process id in the shim's pid namespace. Only for messages and `/proc`: to send a signal use
    /// [`Self::signal`].
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// The pidfd, or `None` if the process was reaped before it was adopted.
    pub fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        self.pidfd.as_ref().map(AsFd::as_fd)
    }

    /// Whether the process has not exited yet; a zombie counts as exited.
    pub fn is_running(&self) -> bool {
        let Some(pidfd) = &self.pidfd else { return false };
        // A pidfd becomes readable when its process exits.
        matches!(poll_now(PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)), Ok(false))
    }

    /// Sends a signal through the pidfd, so never to a later process with the same pid.
    ///
    /// # Errors
    /// The kernel's, in practice only EPERM.
    pub fn signal(&self, signal: SignalNumber) -> io::Result<SignalDelivery> {
        let Some(pidfd) = &self.pidfd else { return Ok(SignalDelivery::AlreadyGone) };
        // The kernel takes a signal for one that has ended and is not released yet.
        if !self.is_running() {
            return Ok(SignalDelivery::AlreadyGone);
        }
        // SAFETY: the descriptor is open for the call; a null siginfo asks for kill(2)'s behaviour.
        let result = unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                pidfd.as_raw_fd(),
                signal.as_raw(),
                std::ptr::null::<libc::siginfo_t>(),
                0,
            )
        };
        if result == 0 {
            return Ok(SignalDelivery::Delivered);
        }
        match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ESRCH) => Ok(SignalDelivery::AlreadyGone),
            error => Err(error),
        }
    }

    /// What the process executes now, judged by its name.
    ///
    /// runc's init calls itself `runc:[2:INIT]`, and `execve` gives it the name
    /// of its program. A program with exactly that name looks like the init; the only effect is that its gate stays
    /// closed.
    ///
    /// Do not use `/proc/<pid>/exe`: stat(2) asks the program's file system, which may be one that the container serves
    /// (FUSE) and that never answers. Nor any link or number that needs the process's memory or file for a moment
    /// (`readlink` of `exe`, `stat`): if the process ends just then, the holder of the last reference unmaps and closes
    /// for it, and waits.
    ///
    /// # Errors
    /// `NotFound` if it has exited.
    pub fn executable(&self) -> io::Result<ExecutableIdentity> {
        let mut name = [0; NAME_LONGEST];
        // One read returns all of it; the line end is compared like any other byte.
        let _ = at_once::open(&self.proc_path("comm"), File::options().read(true))?.read(&mut name)?;
        if !self.is_running() {
            // The pid may have been reused between the exit and this read.
            return Err(io::Error::from(io::ErrorKind::NotFound));
        }
        Ok(ExecutableIdentity(name))
    }

    /// Waits until the process executes something other than `runtime_init` (rule U1).
    ///
    /// `runtime_init` is the identity recorded right after `create`. The kernel has no event for another process's exec
    /// without ptrace or the proc connector, so this polls. Cancel-safe.
    pub async fn wait_for_exec(&self, runtime_init: ExecutableIdentity, deadline: Instant) -> ExecOutcome {
        let mut exit = pin!(self.until_exit());
        let mut pause = EXEC_POLL_FIRST;
        loop {
            match self.executable() {
                Ok(now) if now != runtime_init => return ExecOutcome::Executed,
                Ok(_) => {}
                Err(_) if !self.is_running() => return ExecOutcome::Exited,
                // Perhaps out of descriptors: try again.
                Err(_) => {}
            }
            if Instant::now() >= deadline {
                return ExecOutcome::TimedOut;
            }
            // Do not wait for the next look if the program ends at once, as many an init container does.
            let next_check = tokio::time::sleep_until(deadline.min(Instant::now() + pause));
            tokio::select! {
                () = next_check => pause = (pause * 2).min(EXEC_POLL_LONGEST),
                () = &mut exit => return ExecOutcome::Exited,
            }
        }
    }

    /// Resolves when the process exits. Never resolves if there is no descriptor to watch it with: also poll.
    pub async fn until_exit(&self) {
        let watch = |pidfd: &OwnedFd| register(pidfd.try_clone()?.into(), Interest::READABLE);
        match self.pidfd.as_ref().map(watch) {
            Some(Ok(watched)) => drop(watched.readable().await),
            Some(Err(_)) => std::future::pending().await,
            None => {}
        }
    }

    /// Opens a namespace of the process, such as `net` or `mnt`, and checks that it belongs to this very process.
    ///
    /// # Errors
    /// It has ended, or the kernel's error; `WouldBlock` if a process has a lease on the file.
    pub fn open_namespace(&self, name: &str) -> io::Result<File> {
        let namespace = at_once::open(&self.proc_path("ns").join(name), File::options().read(true))?;
        if self.is_running() { Ok(namespace) } else { Err(io::Error::from(io::ErrorKind::NotFound)) }
    }

    /// Moves the calling thread into the network namespace of the process.
    ///
    /// From Linux 5.8 on by the pidfd, which opens nothing: with root's number any process that shares the namespace may have a lease
    /// on its file.
    ///
    /// # Errors
    /// As of [`Self::open_namespace`], and the kernel's.
    pub fn enter_network(&self) -> io::Result<()> {
        if let Some(pidfd) = &self.pidfd
            && let entered = setns(pidfd, CloneFlags::CLONE_NEWNET)
            && entered != Err(Errno::EINVAL)
        {
            return Ok(entered?);
        }
        Ok(setns(self.open_namespace("net")?, CloneFlags::CLONE_NEWNET)?)
    }

    fn proc_path(&self, entry: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{entry}", self.pid))
    }
}
