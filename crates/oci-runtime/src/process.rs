//! A process as a value that cannot be mistaken for another one: pid and pidfd travel together.
//!
//! Owns signal delivery and the question "has the user program been exec'd" (rule U1), and the one setting
//! of the shim's own process. It never waits for a process: exits come from the
//! [`Reaper`](crate::reaper::Reaper) alone.

use std::{
    fmt,
    fs::File,
    io::{self, Read},
    os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    path::PathBuf,
    pin::pin,
    sync::OnceLock,
    time::Duration,
};

use nix::{
    poll::{PollFd, PollFlags},
    time::{ClockId, clock_gettime},
    unistd::Pid,
};
use thiserror::Error;
use tokio::{io::Interest, time::Instant};

use crate::async_file::{poll_now, register};

/// First pause between two looks at `/proc/<pid>/comm`; an opened gate should cost a few milliseconds.
const EXEC_POLL_FIRST: Duration = Duration::from_millis(1);
/// Longest pause between two looks, for runtimes whose start hooks take long.
const EXEC_POLL_LONGEST: Duration = Duration::from_millis(20);

/// A signal number that can be sent to a process: 1 to 64, real-time signals included.
///
/// containerd's Kill request carries the number, so an enum of the named signals would not do.
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

/// What became of a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignalDelivery {
    /// The kernel accepted the signal for the process (which may be a zombie the reaper has not seen yet).
    Delivered,
    /// The process had exited and was reaped: nothing received the signal.
    AlreadyGone,
}

/// The name that the kernel gives a process at an `execve`, comparable across one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExecutableIdentity([u8; NAME_LONGEST]);

/// `TASK_COMM_LEN` of linux/sched.h.
const NAME_LONGEST: usize = 16;

/// The end of a wait for the user program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecOutcome {
    /// The process now executes something other than the runtime's own init (rule U1).
    Executed,
    /// The process ended before the change was seen. It may or may not have run its program: its exit tells.
    Exited,
    /// The deadline passed and the process is still the runtime's init.
    TimedOut,
}

/// Turns transparent huge pages off for the calling process: one of them would double a shim's memory.
///
/// The kernel hands the setting on through fork and exec; [`Reaper::spawn`](crate::reaper::Reaper::spawn)
/// takes it back for every child. Fails with the kernel's error.
pub fn disable_huge_pages() -> io::Result<()> {
    Ok(nix::sys::prctl::set_thp_disable(true)?)
}

/// What this process has used of a processor, without its children.
pub fn processor_time() -> Duration {
    let used = clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID);
    used.map(Duration::from).unwrap_or_default()
}

/// What this process had before [`use_all_open_files`].
static OPEN_FILES_BEFORE: OnceLock<libc::rlimit> = OnceLock::new();

/// Raises this process's limit of open files to what it may have, as every Go program does. A container takes fourteen of
/// them, so that the usual 1,024 would be seventy containers.
///
/// [`Reaper::spawn`](crate::reaper::Reaper::spawn) takes it back for every child: a program that uses `select` must not
/// get more by inheritance. Fails with the kernel's error.
pub fn use_all_open_files() -> io::Result<()> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the kernel writes one rlimit.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    let before = *OPEN_FILES_BEFORE.get_or_init(|| limit);
    set_open_files(&libc::rlimit { rlim_cur: before.rlim_max, ..before })
}

/// In a child, between fork and exec: makes only async-signal-safe calls.
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

/// A child (or adopted grandchild) with the pidfd that names it and no later process of the same pid.
#[derive(Debug)]
pub struct Process {
    pid: Pid,
    // None: it was reaped before anyone could open a pidfd. Its Exit is already on its way.
    pidfd: Option<OwnedFd>,
}

impl Process {
    /// Opens the pidfd of a process that exists, as a zombie at the least.
    ///
    /// Only the reaper knows whose pid that is: it is the sole waiter, so between learning a pid and this call the pid
    /// cannot be reused. For others it is whoever has the pid now. Fails with ESRCH when it has been reaped.
    pub fn open(pid: Pid) -> io::Result<Self> {
        // SAFETY: pidfd_open takes a pid and flags and touches no memory of ours.
        let descriptor = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) };
        if descriptor < 0 {
            return Err(match io::Error::last_os_error() {
                // Linux 6.1, for one: its number is still taken, as the session or group of a child it left behind.
                error if error.raw_os_error() == Some(libc::EINVAL) => {
                    io::Error::from_raw_os_error(libc::ESRCH)
                }
                error => error,
            });
        }
        // SAFETY: the kernel just returned this descriptor (CLOEXEC by definition) to us alone.
        let pidfd = unsafe { OwnedFd::from_raw_fd(descriptor as libc::c_int) };
        Ok(Self { pid, pidfd: Some(pidfd) })
    }

    /// A process whose pidfd the kernel has sent with its pid.
    pub(crate) fn of_pidfd(pid: Pid, pidfd: OwnedFd) -> Self {
        Self { pid, pidfd: Some(pidfd) }
    }

    /// A process whose exit was recorded before a pidfd could be opened.
    pub(crate) fn already_exited(pid: Pid) -> Self {
        Self { pid, pidfd: None }
    }

    /// The process id in the shim's pid namespace. For reports and `/proc` only: signals take [`Self::signal`].
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// The pidfd, or `None` when the process had been reaped before it was adopted.
    pub fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        self.pidfd.as_ref().map(AsFd::as_fd)
    }

    /// Whether the process has not exited yet; a zombie counts as exited.
    pub fn is_running(&self) -> bool {
        let Some(pidfd) = &self.pidfd else { return false };
        // A pidfd becomes readable when its process exits.
        matches!(poll_now(PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)), Ok(false))
    }

    /// Sends a signal through the pidfd: never to a later process that got the same pid.
    ///
    /// Fails with the kernel's error, in practice only EPERM.
    pub fn signal(&self, signal: SignalNumber) -> io::Result<SignalDelivery> {
        let Some(pidfd) = &self.pidfd else { return Ok(SignalDelivery::AlreadyGone) };
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

    /// What the process executes now, as far as its name tells.
    ///
    /// Fails with `NotFound` when it has exited. An init of runc's calls itself `runc:[2:INIT]`, and `execve` gives it the
    /// name of its program. A program of that very name is not told from the init: its gate then stays closed, and nothing
    /// else.
    ///
    /// Not `/proc/<pid>/exe`: stat(2) asks the file system of the program, which may be one that the container serves (FUSE)
    /// and never answers. Nor a link or a number that needs the process's memory or file for a moment (`readlink` of `exe`,
    /// `stat`): whoever has the last reference of a process that ends just then unmaps and closes for it, and waits.
    pub fn executable(&self) -> io::Result<ExecutableIdentity> {
        let mut name = [0; NAME_LONGEST];
        // One read has it all, and its line end is as good as any other byte.
        let _ = File::open(self.proc_path("comm"))?.read(&mut name)?;
        if !self.is_running() {
            // The pid may have been reused between the exit and the look.
            return Err(io::Error::from(io::ErrorKind::NotFound));
        }
        Ok(ExecutableIdentity(name))
    }

    /// Waits until the process executes something other than `runtime_init` (rule U1).
    ///
    /// `runtime_init` is the identity recorded right after `create`. There is no kernel event for an
    /// exec of another process without ptrace or the proc connector, so this polls. Cancel-safe.
    pub async fn wait_for_exec(&self, runtime_init: ExecutableIdentity, deadline: Instant) -> ExecOutcome {
        let mut exit = pin!(self.until_exit());
        let mut pause = EXEC_POLL_FIRST;
        loop {
            match self.executable() {
                Ok(now) if now != runtime_init => return ExecOutcome::Executed,
                Ok(_) => {}
                Err(_) if !self.is_running() => return ExecOutcome::Exited,
                // No descriptor to spare, perhaps: look again.
                Err(_) => {}
            }
            if Instant::now() >= deadline {
                return ExecOutcome::TimedOut;
            }
            // A program that ends at once, as many an init container's, is not waited for until the next look.
            let next_look = tokio::time::sleep_until(deadline.min(Instant::now() + pause));
            tokio::select! {
                () = next_look => pause = (pause * 2).min(EXEC_POLL_LONGEST),
                () = &mut exit => return ExecOutcome::Exited,
            }
        }
    }

    /// Ends when the process exits. Never, where that cannot be watched for want of a descriptor: look as well.
    async fn until_exit(&self) {
        let watch = |pidfd: &OwnedFd| register(pidfd.try_clone()?.into(), Interest::READABLE);
        match self.pidfd.as_ref().map(watch) {
            Some(Ok(watched)) => drop(watched.readable().await),
            Some(Err(_)) => std::future::pending().await,
            None => {}
        }
    }

    /// Opens a namespace of the process, such as `net` or `mnt`, checked to be that of this very process.
    pub fn open_namespace(&self, name: &str) -> io::Result<File> {
        let namespace = File::open(self.proc_path("ns").join(name))?;
        if self.is_running() { Ok(namespace) } else { Err(io::Error::from(io::ErrorKind::NotFound)) }
    }

    fn proc_path(&self, entry: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/{entry}", self.pid))
    }
}
