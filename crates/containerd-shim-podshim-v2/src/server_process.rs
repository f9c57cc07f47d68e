//! The server as a child of `start`: how it is started, and what it inherits.
//!
//! Owns the descriptor numbers both sides agree on. The server is the one process that must outlive its
//! parent, so the reaper, whose children die with it, cannot start it.

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

use crate::args::Verbosity;

/// The listening socket, the number that containerd's own shim uses.
const LISTENER_FD: RawFd = 3;
/// The locked file of the pod's server.
const LOCK_FD: RawFd = 4;
/// Where the server learns containerd's event socket (CONTRACT §6).
pub const TTRPC_ADDRESS: &str = "TTRPC_ADDRESS";

/// What a server is started with.
#[derive(Debug)]
pub struct Invocation<'a> {
    /// containerd's namespace.
    pub namespace: &'a str,
    /// The grouping id.
    pub group: &'a str,
    /// containerd's socket.
    pub daemon: &'a str,
    /// containerd's event socket, where `start` knows it better than the environment.
    pub ttrpc_address: Option<&'a str>,
    /// How much it logs.
    pub verbosity: Verbosity,
    /// Its working directory at first: it opens the log there.
    pub bundle: &'a Path,
    /// The socket it serves.
    pub listener: &'a UnixListener,
    /// The lock it holds for life.
    pub lock: &'a File,
}

/// A server this process has started.
#[derive(Debug)]
pub struct ServerProcess {
    child: Child,
}

impl ServerProcess {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it and waits until it has ended.
    #[expect(clippy::disallowed_methods, reason = "the parent of a half started server is its only waiter")]
    pub fn kill(mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a server in a process group of its own, with no descriptor but the null device, the socket and the
/// lock: containerd reads `start`'s output until everybody has closed it (trap 2).
///
/// # Errors
///
/// The system's answer, also for a failed exec; there is no process then.
#[expect(clippy::disallowed_methods, reason = "the server outlives this process, no reaper is involved")]
pub fn spawn(invocation: &Invocation<'_>) -> io::Result<ServerProcess> {
    // Above the numbers they will get, so that neither dup2 overwrites what the other one needs.
    let listener = dup_above(invocation.listener.as_fd())?;
    let lock = dup_above(invocation.lock.as_fd())?;
    // `spawn` opens a pipe to report a failed exec: with 3 and 4 taken here it cannot get these numbers.
    let _taken = take_low_numbers()?;
    // By its path, so that `ps` shows the name; an upgrade may have removed that file under us.
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
    if invocation.verbosity == Verbosity::Debug {
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
                // dup2's copy is not closed at exec.
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

/// The signals that ask a server to stop its pod. It begins with them blocked: one that comes before it can
/// handle them must neither be lost nor end it unprepared.
pub fn stop_signals() -> SigSet {
    SigSet::from_iter([Signal::SIGTERM, Signal::SIGINT])
}

fn dup_above(fd: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let copy = fcntl(fd, FcntlArg::F_DUPFD_CLOEXEC(LOCK_FD + 1))?;
    // SAFETY: the kernel just made this descriptor for us alone.
    Ok(unsafe { OwnedFd::from_raw_fd(copy) })
}

/// Fills the numbers the server's descriptors will have, as far as they are free.
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

/// Marks every other descriptor close-on-exec: a caller may have left some open that are not.
fn close_others_at_exec() {
    const CLOSE_RANGE_CLOEXEC: libc::c_uint = 4;
    let first = (LOCK_FD + 1) as libc::c_uint;
    // SAFETY: close_range takes numbers only; with this flag nothing is closed before the exec.
    let result =
        unsafe { libc::syscall(libc::SYS_close_range, first, libc::c_uint::MAX, CLOSE_RANGE_CLOEXEC) };
    if result != 0 {
        // Before Linux 5.11: what a caller can have left open is among the low numbers.
        for fd in LOCK_FD + 1..1024 {
            // SAFETY: a number that is not open gives EBADF and changes nothing.
            unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) };
        }
    }
}

/// What the server was given by `start`.
#[derive(Debug)]
pub struct Inheritance {
    /// The socket to serve, already listening.
    pub listener: UnixListener,
    /// The lock to hold for life.
    pub lock: File,
}

impl Inheritance {
    /// Takes the inherited descriptors. Call once, before anything else is opened.
    ///
    /// # Errors
    ///
    /// A text for people who ran the program by hand: then there are no such descriptors.
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
    // SAFETY: only asks about the number; -1 when it is not open.
    if unsafe { libc::fcntl(number, libc::F_GETFD) } < 0 {
        return None;
    }
    // SAFETY: it is open, and nobody in this process owns it: it was inherited, and this runs first.
    let fd = unsafe { OwnedFd::from_raw_fd(number) };
    // A container that inherited the lock would keep the dead shim's pod from ever being ended.
    fcntl(&fd, FcntlArg::F_SETFD(FdFlag::FD_CLOEXEC)).ok()?;
    Some(fd)
}
