//! The kernel's freezer of a container's group, written past every shim, as `runc pause` or an administrator does.
//!
//! Owns where its files are, on cgroup v1 and v2. Knows no rule.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::wait;

/// One group in the hierarchy of the freezer.
#[derive(Clone, Debug)]
pub struct Freezer {
    directory: PathBuf,
    is_v2: bool,
}

impl Freezer {
    /// That of the group that a process is in.
    ///
    /// # Errors
    /// If the process has ended.
    pub fn of(pid: libc::pid_t) -> Result<Self> {
        let top = Path::new("/sys/fs/cgroup");
        let is_v2 = top.join("cgroup.controllers").exists();
        let marker = if is_v2 { "0::/" } else { ":freezer:/" };
        let membership = fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
        let path = membership.lines().find_map(|line| Some(line.split_once(marker)?.1));
        let path = path.with_context(|| format!("no freezer in {membership}"))?;
        let directory = if is_v2 { top.join(path) } else { top.join("freezer").join(path) };
        Ok(Self { directory, is_v2 })
    }

    /// A new group inside of it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn inner(&self, name: &str) -> Result<Self> {
        let directory = self.directory.join(name);
        fs::create_dir(&directory)?;
        Ok(Self { directory, is_v2: self.is_v2 })
    }

    /// The processes of the group itself.
    ///
    /// # Errors
    /// If the group is gone.
    pub fn members(&self) -> Result<Vec<libc::pid_t>> {
        let text = fs::read_to_string(self.directory.join("cgroup.procs"))?;
        Ok(text.lines().filter_map(|line| line.parse().ok()).collect())
    }

    /// Moves a process into it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn take(&self, pid: libc::pid_t) -> Result<()> {
        Ok(fs::write(self.directory.join("cgroup.procs"), pid.to_string())?)
    }

    /// Freezes it, and waits until it is.
    ///
    /// # Errors
    /// The kernel's.
    pub async fn freeze(&self) -> Result<()> {
        let (file, word) = if self.is_v2 { ("cgroup.freeze", "1") } else { ("freezer.state", "FROZEN") };
        fs::write(self.directory.join(file), word)?;
        wait::until("the group to be frozen", Duration::from_secs(5), async || {
            let (file, word) =
                if self.is_v2 { ("cgroup.events", "frozen 1") } else { ("freezer.state", "FROZEN") };
            let state = fs::read_to_string(self.directory.join(file))?;
            Ok(state.contains(word).then_some(()))
        })
        .await
    }
}
