//! `file:` probes: does a path exist, seen from inside the container (rule U2)?
//!
//! Owns one look, which a helper process does. Never opens the file itself: what the container put there, perhaps a
//! fifo or a device, stays untouched.

use std::{
    cell::Cell,
    ffi::{CStr, CString},
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    rc::Rc,
    time::Duration,
};

use nix::{
    errno::Errno,
    fcntl::{OFlag, OpenHow, ResolveFlag, openat2},
};

use super::result::{ProbeResult, timed_out};
use crate::{helper_process, process::Process, reaper::Reaper};

/// The looks of one container. Only one runs at a time: a file system that never answers (FUSE, NFS) must not cost a
/// process for each look.
#[derive(Debug, Clone, Default)]
pub struct FileChecks(Rc<Cell<Lookup>>);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Lookup {
    #[default]
    Idle,
    Running,
}

/// Within a root the kernel does not resolve `..` while any process of the machine renames or mounts something (EAGAIN).
const TRIES: u32 = 1000;

/// A running lookup; dropping this ends it.
struct RunningLookup(FileChecks);

impl RunningLookup {
    fn begin(checks: &FileChecks) -> Option<Self> {
        (checks.0.replace(Lookup::Running) == Lookup::Idle).then(|| Self(checks.clone()))
    }
}

impl Drop for RunningLookup {
    fn drop(&mut self) {
        self.0.0.set(Lookup::Idle);
    }
}

/// Succeeds when something exists at `path` in the root of `process` within `timeout`.
///
/// Links are followed only inside that root, and magic links (`/proc/<pid>/root`) never, so no link that a container
/// plants in a shared volume leads out of it (DESIGN §6). Mounts are those that the process sees. Cancel-safe.
pub async fn file(
    reaper: &Reaper,
    process: &Process,
    path: &str,
    checks: &FileChecks,
    timeout: Duration,
) -> ProbeResult {
    let failure = match tokio::time::timeout(timeout, check(reaper, process, path, checks)).await {
        Ok(Ok(())) => return ProbeResult::Success,
        Ok(Err(error)) if error.kind() == io::ErrorKind::NotFound => "is not there".to_owned(),
        Ok(Err(error)) => format!("cannot be looked for: {error}"),
        Err(_) => timed_out(timeout),
    };
    ProbeResult::Failure(format!("file:{path} {failure}"))
}

/// Looks in a helper process: even the root may be a file system that has to ask its server (NFS).
async fn check(reaper: &Reaper, process: &Process, path: &str, checks: &FileChecks) -> io::Result<()> {
    let (Some(pidfd), Ok(path)) = (process.pidfd(), CString::new(path)) else {
        return Err(io::ErrorKind::NotFound.into());
    };
    let Some(running) = RunningLookup::begin(checks) else {
        return Err(io::Error::new(
            io::ErrorKind::ResourceBusy,
            "its file system has not answered the last look",
        ));
    };
    let root = CString::new(format!("/proc/{}/root", process.pid()))?;
    let job = || match exists(pidfd, &root, &path) {
        Ok(()) => 0,
        // invariant: the kernel's error numbers end at 133.
        Err(error) => error as i32 as u8,
    };
    // SAFETY: the job only makes system calls, on texts that outlive it.
    let (helper, exit) = unsafe { helper_process::run(reaper, c"podshim-file", &[pidfd], job) }?;
    // The look ends with the helper, which may be long after this future was dropped.
    let over = tokio::task::spawn_local(async move {
        let exit = exit.await;
        drop(running);
        exit
    });
    let exit = over.await.map_err(io::Error::other);
    drop(helper);
    match exit?.code {
        0 => Ok(()),
        helper_process::NOT_BEGUN => Err(io::Error::other("the helper process could not start")),
        error => Err(io::Error::from_raw_os_error(error.into())),
    }
}

/// Runs in the helper: makes only system calls.
fn exists(pidfd: BorrowedFd<'_>, root: &CStr, path: &CStr) -> nix::Result<()> {
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC;
    // SAFETY: the path ends with a NUL.
    let root = Errno::result(unsafe { libc::open(root.as_ptr(), flags) })?;
    // SAFETY: the kernel has just given this descriptor to this process alone.
    let root = unsafe { OwnedFd::from_raw_fd(root) };
    let mut process = libc::pollfd { fd: pidfd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one pollfd of this function. If it is readable, the process has ended, and the root may be that of a
    // later process with the same pid.
    if unsafe { libc::poll(&raw mut process, 1, 0) } != 0 {
        return Err(Errno::ENOENT);
    }
    let how = OpenHow::new()
        .flags(OFlag::O_PATH | OFlag::O_CLOEXEC)
        .resolve(ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS);
    let mut found = Err(Errno::EAGAIN);
    for _ in 0..TRIES {
        found = openat2(&root, path, how).map(drop);
        if found != Err(Errno::EAGAIN) {
            break;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        reaper::Reaper,
        test_support::{run, within},
    };

    /// U2, DESIGN §6: a look that does not return must not cost another one in each period.
    #[test]
    fn u2_a_file_system_that_never_answers_costs_one_check() {
        run(async {
            let reaper = Reaper::start().unwrap();
            let own = reaper.spawn(std::process::Command::new("sleep").arg("1000")).unwrap();
            let checks = FileChecks::default();
            let limit = Duration::from_secs(5);
            let running = RunningLookup::begin(&checks).unwrap();
            let refused = within(file(&reaper, &own.process, "/", &checks, limit)).await.to_string();
            assert_eq!(
                refused,
                "file:/ cannot be looked for: its file system has not answered the last look"
            );
            drop(running);
            assert_eq!(within(file(&reaper, &own.process, "/", &checks, limit)).await, ProbeResult::Success);
            own.process.signal(crate::process::SignalNumber::KILL).unwrap();
            within(own.exit).await;
        });
    }
}
