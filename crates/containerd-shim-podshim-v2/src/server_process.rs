//! The server as a child of `start`: how it is started, and what it inherits.
//!
//! Owns the descriptor numbers that both sides use. The server is the only process that must outlive its parent, so the
//! reaper, whose children die with it, cannot start it.

use std::env;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixListener;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use nix::fcntl::{FcntlArg, FdFlag, fcntl};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::socket::{getsockopt, sockopt};
use tracing::Level;

/// The listening socket; containerd's own shim uses the same number.
const LISTENER_FD: RawFd = 3;
/// The locked file of the pod's server.
const LOCK_FD: RawFd = 4;
/// The variable with containerd's event socket (CONTRACT §6).
pub const TTRPC_ADDRESS: &str = "TTRPC_ADDRESS";

/// The parameters of a new server.
#[derive(Debug)]
pub struct Invocation<'a> {
    /// containerd's namespace.
    pub namespace: &'a str,
    /// The grouping id.
    pub group: &'a str,
    /// containerd's socket.
    pub daemon: &'a str,
    /// containerd's event socket, if `start` got one on stdin; otherwise the environment has it.
    pub ttrpc_address: Option<&'a str>,
    /// How much it logs.
    pub log_level: Level,
    /// Its first working directory: it opens the log there.
    pub bundle: &'a Path,
    /// The socket it serves.
    pub listener: &'a UnixListener,
    /// The lock it holds until it ends.
    pub lock: &'a File,
}

/// A server that this process has started.
#[derive(Debug)]
pub struct ServerProcess {
    child: Child,
}

impl ServerProcess {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Kills it and waits until it has ended.
    #[expect(clippy::disallowed_methods, reason = "the parent of a half started server is its only waiter")]
    pub fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a server in a process group of its own. Its only descriptors are the null device, the socket and the lock:
/// containerd reads `start`'s output until every process has closed it (trap 2).
///
/// # Errors
///
/// The system's error, also for a failed exec; then there is no process.
#[expect(clippy::disallowed_methods, reason = "the server outlives this process, no reaper is involved")]
pub fn spawn(invocation: &Invocation<'_>) -> io::Result<ServerProcess> {
    // Copy them above the numbers they will get, so that no dup2 overwrites a descriptor that is still needed.
    let listener = dup_above(invocation.listener.as_fd())?;
    let lock = dup_above(invocation.lock.as_fd())?;
    // `spawn` opens a pipe to report a failed exec: with 3 and 4 taken here, that pipe cannot get these numbers.
    let _taken = take_low_numbers()?;
    // By its path, so that `ps` shows the name; an upgrade may have removed that file meanwhile.
    let program = env::current_exe()
        .ok()
        .filter(|path| path.exists())
        .unwrap_or_else(|| PathBuf::from("/proc/self/exe"));
    let mut command = Command::new(program);
    command
        .args(["-namespace", invocation.namespace, "-id", invocation.group, "-address", invocation.daemon])
        .current_dir(invocation.bundle)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0);
    if invocation.log_level == Level::DEBUG {
        command.arg("-debug");
    }
    if let Some(address) = invocation.ttrpc_address {
        command.env(TTRPC_ADDRESS, address);
    }
    let (listener_fd, lock_fd) = (listener.as_raw_fd(), lock.as_raw_fd());
    // SAFETY: between fork and exec only async-signal-safe system calls are made, and nothing is allocated.
    unsafe {
        command.pre_exec(move || {
            for (from, to) in [(listener_fd, LISTENER_FD), (lock_fd, LOCK_FD)] {
                // exec does not close the copy that dup2 makes.
                if libc::dup2(from, to) < 0 {
                    return Err(io::Error::last_os_error());
                }
            }
            close_others_at_exec();
            stop_signals().thread_block()?;
            Ok(())
        });
    }
    Ok(ServerProcess { child: command.spawn()? })
}

/// The signals that ask a server to stop its pod. It starts with them blocked: one that comes before the server can
/// handle it must neither be lost nor end the server unprepared.
pub fn stop_signals() -> SigSet {
    SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT])
}

fn dup_above(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let copy = fcntl(fd, FcntlArg::F_DUPFD_CLOEXEC(LOCK_FD + 1))?;
    // SAFETY: the kernel has just made this descriptor for this call alone.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Opens files on all of the server's descriptor numbers that are still free.
fn take_low_numbers() -> io::Result<Vec<File>> {
    let mut taken = Vec::new();
    loop {
        let file = File::open("/dev/null")?;
        if file.as_raw_fd() > LOCK_FD {
            return Ok(taken);
        }
        taken.push(file);
    }
}

/// Marks every other descriptor close-on-exec: a caller may have left some open without it.
fn close_others_at_exec() {
    const CLOSE_RANGE_CLOEXEC: libc::c_uint = 4;
    let first = (LOCK_FD + 1) as libc::c_uint;
    // SAFETY: close_range takes only numbers; with this flag nothing is closed before the exec.
    let result =
        unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, CLOSE_RANGE_CLOEXEC) };
    if result != 0 {
        // Before Linux 5.11: descriptors that a caller left open have low numbers.
        for fd in LOCK_FD + 1..1024 {
            // SAFETY: a number that is not open gives EBADF and changes nothing.
            unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }
}

/// What the server gets from `start`.
#[derive(Debug)]
pub struct InheritedDescriptors {
    /// The socket to serve, already listening.
    pub listener: UnixListener,
    /// The lock to hold until the server ends.
    pub lock: File,
}

impl InheritedDescriptors {
    /// Takes the inherited descriptors. Call once, before anything else is opened.
    ///
    /// # Errors
    ///
    /// A text for users who ran the program by hand: then these descriptors are missing.
    pub fn take() -> Result<Self, &'static str> {
        const BY_HAND: &str = "without an action this program is the server that `start` runs: \
                               it needs a listening socket as descriptor 3 and a lock as descriptor 4; see -h";
        let (listener, lock) = (take_fd(LISTENER_FD).ok_or(BY_HAND)?, take_fd(LOCK_FD).ok_or(BY_HAND)?);
        if !getsockopt(&listener, sockopt::AcceptConn).unwrap_or(false) {
            return Err(BY_HAND);
        }
        Ok(Self { listener: listener.into(), lock: lock.into() })
    }
}

fn take_fd(number: RawFd) -> Option<OwnedFd> {
    // SAFETY: only queries the number; -1 if it is not open.
    if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
        return None;
    }
    // SAFETY: it is open, and nothing in this process owns it: it was inherited, and this runs first.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    // If a container inherited the lock, `delete` could never end the dead shim's pod.
    fcntl(&fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).ok()?;
    Some(fd)
}
