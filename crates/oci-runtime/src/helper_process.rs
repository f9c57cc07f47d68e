//! Runs one job in a process of its own, which may hang without harm.
//!
//! For system calls that wait for as long as a container likes: a close of its socket, a look at its file system. A
//! thread would not do. One that the kernel does not let go of (state D, where a FUSE server does not answer) keeps the
//! table of files, and so the pod's lock and socket, past the shim's own end; nobody could end the pod then (N3). A
//! helper has no file open but those of its job, and dies with the shim.
//!
//! Owns how a helper comes to be and that it is ended. What it does is its caller's.

use std::{
    ffi::CStr,
    io,
    ops::Range,
    os::fd::{AsRawFd, BorrowedFd, RawFd},
    time::Duration,
};

use nix::{
    poll::{PollFd, PollFlags, PollTimeout, poll},
    unistd::{ForkResult, fork},
};

use crate::{
    process::{Process, SignalNumber},
    reaper::{ExitWatch, Reaper, prepare_child},
};

/// The exit code of a helper that could not begin.
pub(crate) const NOT_BEGUN: u8 = 255;

/// A helper at work. Dropped, it is killed; one in uninterruptible sleep ends when that does.
#[derive(Debug)]
pub(crate) struct HelperProcess(Process);

impl HelperProcess {
    #[cfg(test)]
    pub(crate) fn pid(&self) -> nix::unistd::Pid {
        self.0.pid()
    }
}

impl HelperProcess {
    /// Waits, without letting anything else run meanwhile, until it has ended, for at most `limit`.
    pub(crate) fn wait_briefly(&self, limit: Duration) {
        let Some(pidfd) = self.0.pidfd() else { return };
        let limit = PollTimeout::try_from(limit).unwrap_or(PollTimeout::ZERO);
        // Interrupted by the SIGCHLD of its end, or of another's: then it is not waited for any longer.
        let _ = poll(&mut [PollFd::new(pidfd, PollFlags::POLLIN)], limit);
    }
}

impl Drop for HelperProcess {
    fn drop(&mut self) {
        // It can only be gone already.
        let _ = self.0.signal(SignalNumber::KILL);
    }
}

/// Forks a process that does `job` and ends with the code it returns. Of the open files it keeps those of `files`.
///
/// # Safety
/// The process is a copy of one that may have other threads, made in the middle of what they did: `job` may make system
/// calls and use its own memory. It may not allocate, lock or panic, and what it owns is dropped there.
///
/// # Errors
/// No more processes or descriptors.
pub(crate) unsafe fn run(
    reaper: &Reaper,
    name: &'static CStr,
    files: &[BorrowedFd<'_>],
    job: impl FnOnce() -> u8,
) -> io::Result<(HelperProcess, ExitWatch)> {
    let mut kept: Vec<RawFd> = files.iter().map(AsRawFd::as_raw_fd).collect();
    kept.sort_unstable();
    let (shim, arguments) = (nix::unistd::getpid(), argument_memory());
    // SAFETY: the child makes system calls only, and ends without running anything of its parent's.
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
            // SAFETY: ends the process at once: no destructor and no exit handler of the parent's is run.
            unsafe { libc::_exit(code.into()) }
        }
        ForkResult::Parent { child } => {
            // invariant for the pid: nothing has been awaited since the fork, so it has not been reaped.
            let process = Process::open(child).inspect_err(|_| {
                let _ = nix::sys::signal::kill(child, nix::sys::signal::Signal::SIGKILL);
            })?;
            Ok((HelperProcess(process), reaper.register_own(child)))
        }
    }
}

/// Closes every descriptor that is not among these, which are sorted. None of the others is the last of its file: the
/// shim has them too, so that closing one waits for nobody.
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
    // SAFETY: numbers only; what is closed belongs to nothing in this process.
    if unsafe { libc::syscall(libc::SYS_close_range, first, last, 0) } != 0 {
        // Before Linux 5.9.
        let mut limit = libc::rlimit { rlim_cur: 1024, rlim_max: 0 };
        // SAFETY: the kernel writes one rlimit.
        unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
        let most = RawFd::try_from(limit.rlim_cur.min(1 << 16)).unwrap_or(1 << 16);
        for fd in first..=last.min(most) {
            // SAFETY: as above; a number that is not open changes nothing.
            unsafe { libc::close(fd) };
        }
    }
}

/// Where this process's arguments are, which the kernel shows as its command line. Empty if it does not say so.
fn argument_memory() -> Range<usize> {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // proc_pid_stat(5): arg_start and arg_end are fields 48 and 49, and the second, a name, may have blanks.
    let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(48 - 3);
    match fields.take(2).map(str::parse).collect::<Result<Vec<_>, _>>().as_deref() {
        Ok([start, end]) if 0 < *start && start < end => *start..*end,
        _ => 0..0,
    }
}

/// What `ps` shows of it: without this it would be a second shim to whoever looks for those.
fn call_itself(name: &'static CStr, arguments: Range<usize>) {
    // SAFETY: the kernel copies the name. It has put the arguments into this range of the stack, which is the copy of this
    // process: nothing else in it reads them any more.
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
    use std::{fs::File, io::Read, os::fd::AsFd};

    use super::*;
    use crate::test_support::{run as run_test, until, within};

    /// DESIGN §6: it has nothing open that could outlive the shim with it, and is not taken for a shim.
    #[test]
    fn a_helper_has_nothing_but_the_files_of_its_job() {
        run_test(async {
            let reaper = Reaper::start().unwrap();
            let (mut said, say) = std::io::pipe().unwrap();
            let (other, _held) = std::io::pipe().unwrap();
            let other = other.as_raw_fd();
            let job = move || {
                let mut byte = 0_u8;
                // SAFETY: reads into one byte that is there.
                let read = unsafe { libc::read(other, (&raw mut byte).cast(), 1) };
                if read < 0 { 7 } else { 0 }
            };
            let files = [say.as_fd()];
            // SAFETY: one system call, on a descriptor that is closed there.
            let (helper, exit) = unsafe { run(&reaper, c"podshim-test", &files, job) }.unwrap();
            drop(say);
            assert_eq!(within(exit).await.code, 7);
            drop(helper);
            let mut rest = Vec::new();
            said.read_to_end(&mut rest).unwrap();
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
