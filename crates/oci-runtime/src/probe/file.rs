//! `file:` probes: does a path exist, seen from inside the container (rule U2)?
//!
//! Owns one look. Never opens the file itself: what the container put there, perhaps a fifo or a device, stays untouched.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{OFlag, OpenHow, ResolveFlag, openat2};
use processes::Process;

use super::deadline::{Failed, now};

/// Within a root the kernel does not resolve `..` while any process of the machine renames or mounts something (EAGAIN).
const TRIES: u32 = 1000;

/// Looks for `path` in the root of `process`, which takes as long as its file systems do.
pub(super) fn exists(process: &Process, path: &str, deadline: Duration) -> Result<(), Failed> {
    openable(process, path, deadline).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Failed::Because("is not there".to_owned()),
        io::ErrorKind::TimedOut => Failed::OutOfTime,
        _ => Failed::Because(format!("cannot be looked for: {error}")),
    })
}

fn openable(process: &Process, path: &str, deadline: Duration) -> io::Result<()> {
    let mut options = File::options();
    options.read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY);
    let root = options.open(format!("/proc/{}/root", process.pid()))?;
    if !process.is_running() {
        // The root may be that of a later process with the same pid.
        return Err(io::ErrorKind::NotFound.into());
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
        if now() >= deadline {
            return Err(io::ErrorKind::TimedOut.into());
        }
    }
    Ok(found?)
}
