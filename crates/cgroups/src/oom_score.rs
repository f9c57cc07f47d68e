//! Lowers the `oom_score_adj` of everything in a container's groups (N8), on a thread: the kernel has one lock for all writes of that
//! file, which a thousand writers of any container keep for seconds.

#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use nix::unistd::Pid;
use threads::{at_once, helper_thread};

use super::group::Cgroup;

/// Passes over a group whose members fork while their values are lowered.
const OOM_SCORE_PASSES: usize = 10;

impl Cgroup {
    /// Lowers `oom_score_adj` to `highest` for one process of the group, if it has a higher one (rule N8): for a container whose program
    /// does not run yet.
    ///
    /// # Errors
    /// The kernel's, such as EACCES for values below 0 without CAP_SYS_RESOURCE.
    pub async fn limit_oom_score_of(&self, pid: Pid, highest: i32) -> io::Result<()> {
        let cgroup = self.clone();
        helper_thread::run("oom score", move || cgroup.lower(pid, highest).map(drop)).await
    }

    /// The same for every process in the group.
    ///
    /// # Errors
    /// `Unsupported` if the shim itself is in the group: then the group is not the container's own. Otherwise the
    /// kernel's first error.
    pub async fn limit_oom_score(&self, highest: i32) -> io::Result<()> {
        let cgroup = self.clone();
        helper_thread::run("oom score", move || cgroup.lower_all(highest)).await
    }

    fn lower_all(&self, highest: i32) -> io::Result<()> {
        for _ in 0..OOM_SCORE_PASSES {
            let members = self.pids();
            if members.contains(&nix::unistd::getpid()) {
                return Err(io::Error::new(
                    io::ErrorKind::Unsupported,
                    "the container has no cgroup of its own",
                ));
            }
            let mut lowered = 0;
            for pid in members {
                lowered += usize::from(self.lower(pid, highest)?);
            }
            // The next pass finds the children of processes that still had the old value when they forked.
            if lowered == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Whether the value was higher; `false` for a process that is gone.
    fn lower(&self, pid: Pid, highest: i32) -> io::Result<bool> {
        // The open file belongs to this process, never to a later one with the same pid.
        let path = format!("/proc/{pid}/oom_score_adj");
        let file = at_once::open(Path::new(&path), File::options().read(true).write(true));
        let mut file = match file {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            file => file?,
        };
        let mut text = String::new();
        if file.read_to_string(&mut text).is_err()
            || text.trim().parse().is_ok_and(|score: i32| score <= highest)
            || !self.pids().contains(&pid)
        {
            return Ok(false);
        }
        match file.write_all(highest.to_string().as_bytes()) {
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(false),
            written => written.map(|()| true),
        }
    }
}
