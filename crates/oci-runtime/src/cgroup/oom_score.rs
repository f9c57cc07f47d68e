//! Lowers the `oom_score_adj` of everything in a container's groups (N8).

use std::{
    fs,
    io::{self, Read, Write},
};

use nix::unistd::Pid;

use super::group::Cgroup;

/// Passes over a group whose members fork while their values are lowered.
const OOM_SCORE_PASSES: usize = 10;

impl Cgroup {
    /// Lowers `oom_score_adj` to `highest` for every process in the group that has a higher one (rule N8).
    ///
    /// # Errors
    /// `Unsupported` if the shim itself is in the group: then the group is not the container's own. Otherwise the
    /// kernel's first error, such as EACCES for values below 0 without CAP_SYS_RESOURCE.
    pub fn limit_oom_score(&self, highest: i32) -> io::Result<()> {
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
                lowered += usize::from(self.limit_oom_score_of(pid, highest)?);
            }
            // The next pass finds the children of processes that still had the old value when they forked.
            if lowered == 0 {
                break;
            }
        }
        Ok(())
    }

    /// Whether the value was higher; `false` for a process that is gone.
    fn limit_oom_score_of(&self, pid: Pid, highest: i32) -> io::Result<bool> {
        // The open file belongs to this process, never to a later one with the same pid.
        let file = fs::File::options().read(true).write(true).open(format!("/proc/{pid}/oom_score_adj"));
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
