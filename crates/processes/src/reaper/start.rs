//! The start of a command without a wait for it: a fork, and a pipe on which the child says why it could not execute its program.
//!
//! The standard library's spawn waits until the child has executed: on a busy node for the child's turn on a processor, and for what the
//! child waits for itself (mounts), 0.3 s of the shim's one thread. The pipe closes with the exec, and what is in it is read only
//! once the child has ended.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags};
use nix::unistd::{ForkResult, Pid, fork, pipe2};
use threads::async_file::poll_now;

/// What the child said of its exec.
#[derive(Debug)]
pub struct ExecReport(File);

impl ExecReport {
    /// Whether it has executed its program, or could not.
    pub fn is_complete(&self) -> bool {
        // The pipe's other end is closed then.
        matches!(poll_now(PollFd::new(self.0.as_fd(), PollFlags::POLLIN)), Ok(true))
    }

    /// Why it could not. Certain only when this is complete, as it is when the child has ended.
    pub fn failure(&self) -> Option<io::Error> {
        let mut number = [0; size_of::<i32>()];
        (&self.0).read_exact(&mut number).ok()?;
        Some(io::Error::from_raw_os_error(i32::from_ne_bytes(number)))
    }
}

/// Makes a child that executes `command`, or ends.
///
/// # Errors
/// The kernel's: no process or descriptor is left.
pub(super) fn start(command: &mut Command) -> io::Result<(Pid, ExecReport)> {
    let (report, words) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
    // SAFETY: the child allocates, whose lock the fork takes, and reads the environment, which no thread changes. It ends here.
    match unsafe { fork() }? {
        ForkResult::Child => {
            let error = command.exec();
            // An error without a number is of a text with a NUL byte.
            let number = error.raw_os_error().unwrap_or(libc::EINVAL);
            let _ = File::from(words).write_all(&number.to_ne_bytes());
            // SAFETY: ends the process at once: none of the parent's destructors and exit handlers run.
            unsafe { libc::_exit(1) }
        }
        ForkResult::Parent { child } => Ok((child, ExecReport(report.into()))),
    }
}

#[cfg(test)]
mod tests;
