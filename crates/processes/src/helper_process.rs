//! Runs one job in a process of its own, which may hang without harm.
//!
//! For system calls that a container can make wait as long as it likes: closing its socket, looking at its file system.
//! A thread is not enough: if the kernel does not let it go (state D, when a FUSE server does not answer), it keeps the
//! table of files, and so the pod's lock and socket, past the shim's own end, and then the pod cannot be ended (N3). A
//! helper process has only the files of its job open, and dies with the shim.
//!
//! Owns the start of a helper and its end. The caller owns what the helper does.

use std::ffi::CStr;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{ForkResult, fork};

use crate::process::{Process, SignalNumber};
use crate::reaper::{ExitWatch, Reaper, prepare_child};

/// The exit code of a helper that could not start its job.
pub const NOT_BEGUN: u8 = 255;

/// A running helper. Dropping it kills it; one in uninterruptible sleep ends when that sleep does.
#[derive(Debug)]
pub struct HelperProcess(Process);

impl HelperProcess {
    /// Its process id, for messages and `/proc`.
    pub fn pid(&self) -> nix::unistd::Pid {
        self.0.pid()
    }
}

impl HelperProcess {
    /// Blocks the thread until the helper has ended, for at most `limit`.
    pub fn wait_briefly(&self, limit: Duration) {
        let Some(pidfd) = self.0.pidfd() else { return };
        let limit = PollTimeout::try_from(limit).unwrap_or(PollTimeout::ZERO);
        // The SIGCHLD of its own end, or of another child's, may interrupt it: then this stops waiting.
        let _ = poll(&mut [PollFd::new(pidfd, PollFlags::POLLIN)], limit);
    }
}

impl Drop for HelperProcess {
    fn drop(&mut self) {
        // The only possible failure is that it is gone already.
        let _ = self.0.signal(SignalNumber::KILL);
    }
}

/// Forks a process that does `job` and exits with the code that `job` returns. It keeps only the open files of `files`.
///
/// # Safety
/// The child is a copy of a process that may have other threads, made at any point of their work: `job` may allocate, whose
/// lock the fork takes, but wait for no other lock, and it may not panic. What it owns is dropped in the child too.
///
/// # Errors
/// The system has no process or descriptor left.
pub unsafe fn run(
    reaper: &Reaper,
    name: &'static CStr,
    files: &[BorrowedFd<'_>],
    job: impl FnOnce() -> u8,
) -> io::Result<(HelperProcess, ExitWatch)> {
    let mut kept: Vec<RawFd> = files.iter().map(AsRawFd::as_raw_fd).collect();
    kept.sort_unstable();
    let (shim, arguments) = (nix::unistd::getpid(), argument_memory());
    // SAFETY: the child only makes system calls, and ends without running any of its parent's code.
    match unsafe { fork() }? {
        ForkResult::Child => {
            let code = match prepare_child(shim) {
                Ok(()) => {
                    close_all_but(&kept);
                    call_itself(name, arguments);
                    job()
                }
                Err(_) => NOT_BEGUN,
            };
            // SAFETY: ends the process at once: none of the parent's destructors and exit handlers run.
            unsafe { libc::_exit(code.into()) }
        }
        ForkResult::Parent { child } => {
            // invariant for the pid: nothing was awaited since the fork, so it has not been reaped.
            let process = Process::open(child).inspect_err(|_| {
                let _ = nix::sys::signal::kill(child, nix::sys::signal::Signal::SIGKILL);
            })?;
            Ok((HelperProcess(process), reaper.register_own(child)))
        }
    }
}

/// Closes every descriptor that is not in `kept`, which is sorted. None of these closes waits: the shim has the same
/// files open, so none is the last reference.
fn close_all_but(kept: &[RawFd]) {
    let mut first = 0;
    for fd in kept {
        close_range(first, fd - 1);
        first = fd + 1;
    }
    close_range(first, RawFd::MAX);
}

fn close_range(first: RawFd, last: RawFd) {
    if first > last {
        return;
    }
    // SAFETY: only numbers are passed; nothing in this process owns the descriptors that are closed.
    if unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } != 0 {
        // Before Linux 5.9 there is no close_range.
        let mut limit = libc::rlimit { rlim_cur: 1024, rlim_max: 0 };
        // SAFETY: the kernel writes one rlimit.
        unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
        let most = RawFd::try_from(limit.rlim_cur.min(1 << 16)).unwrap_or(1 << 16);
        for fd in first..=last.min(most) {
            // SAFETY: as above; closing a number that is not open changes nothing.
            unsafe { libc::close(fd) };
        }
    }
}

/// The memory of this process's arguments, which the kernel shows as its command line. Empty if it is unknown.
fn argument_memory() -> Range<usize> {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // proc_pid_stat(5): arg_start and arg_end are fields 48 and 49; the second field, a name, may contain blanks.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(48 - 3);
    match fields.take(2).map(str::parse).collect::<Result<Vec<_>, _>>().as_deref() {
        Ok([start, end]) if 0 < *start && start < end => *start..*end,
        _ => 0..0,
    }
}

/// Sets the name that `ps` shows. Otherwise a tool that looks for shims would count this helper as a second one.
fn call_itself(name: &'static CStr, arguments: Range<usize>) {
    // SAFETY: the kernel copies the name. It put the arguments into this range of the stack, of which this process has
    // its own copy, and nothing in this process reads them any more.
    unsafe {
        libc::prctl(libc::PR_SET_NAME, name.as_ptr());
        if let Some(room) = arguments.len().checked_sub(1) {
            let start = std::ptr::with_exposed_provenance_mut::<u8>(arguments.start);
            start.write_bytes(0, arguments.len());
            start.copy_from(name.as_ptr().cast(), name.count_bytes().min(room));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::Read;
    use std::os::fd::AsFd;

    use super::*;
    use test_support::{run as run_test, until, within};

    /// DESIGN §6: a helper has no file open that could outlive the shim, and does not look like a shim.
    #[test]
    fn a_helper_has_nothing_but_the_files_of_its_job() {
        run_test(async {
            let reaper = Reaper::start().unwrap();
            let (mut reader, writer) = std::io::pipe().unwrap();
            let (other, _held) = std::io::pipe().unwrap();
            let other = other.as_raw_fd();
            let job = move || {
                let mut byte = 0_u8;
                // SAFETY: reads into one byte that exists.
                let read = unsafe { libc::read(other, (&raw mut byte).cast(), 1) };
                if read < 0 { 7 } else { 0 }
            };
            let files = [writer.as_fd()];
            // SAFETY: one system call, on a descriptor that is closed in the child.
            let (helper, exit) = unsafe { run(&reaper, c"podshim-test", &files, job) }.unwrap();
            drop(writer);
            assert_eq!(within(exit).await.code, 7);
            drop(helper);
            let mut rest = Vec::new();
            reader.read_to_end(&mut rest).unwrap();
            assert_eq!(rest, b"");
        });
    }

    #[test]
    fn a_helper_is_killed_with_its_handle() {
        run_test(async {
            let reaper = Reaper::start().unwrap();
            let job = || loop {
                // SAFETY: waits for a signal.
                unsafe { libc::pause() };
            };
            let null = File::open("/dev/null").unwrap();
            // SAFETY: one system call at a time.
            let (helper, exit) = unsafe { run(&reaper, c"podshim-test", &[null.as_fd()], job) }.unwrap();
            let of = |file: &str| std::fs::read(format!("/proc/{}/{file}", helper.pid())).unwrap();
            let line = |line: &[u8]| String::from_utf8_lossy(line).trim_end_matches('\0').to_owned();
            until(|| line(&of("cmdline")) == "podshim-test").await;
            assert_eq!(of("comm"), b"podshim-test\n");
            let open = std::fs::read_dir(format!("/proc/{}/fd", helper.pid())).unwrap().count();
            assert_eq!(open, 1);
            drop(helper);
            assert_eq!(within(exit).await.signal, Some(9));
        });
    }
}
