//! The groups of a container over a restart in place (R6): they stay, with what they have counted and with what was written into
//! them past the shim.
//!
//! An OCI runtime removes a container's groups in its `delete`, and writes the limits of the spec in its `create`. Here is what
//! keeps the first from finding them, and what puts the second right. Owns which files are limits. Signals no process.

#[cfg(test)]
mod tests;

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use threads::{at_once, helper_thread};
use tracing::warn;

use super::abandoned::{self, Found};
use super::group::Cgroup;

/// The files that agents of a node write: limits, weights, sets of processors. In the order in which they are written again: some
/// bound others, so what fails is tried once more at the end.
const LIMITS_V1: [&str; 24] = [
    "cpu.shares",
    "cpu.cfs_period_us",
    "cpu.cfs_quota_us",
    "cpu.cfs_burst_us",
    "cpu.rt_period_us",
    "cpu.rt_runtime_us",
    "cpu.idle",
    "cpuset.cpus",
    "cpuset.mems",
    "memory.limit_in_bytes",
    "memory.memsw.limit_in_bytes",
    "memory.soft_limit_in_bytes",
    "memory.swappiness",
    "pids.max",
    "blkio.weight",
    "blkio.bfq.weight",
    "blkio.throttle.read_bps_device",
    "blkio.throttle.write_bps_device",
    "blkio.throttle.read_iops_device",
    "blkio.throttle.write_iops_device",
    "net_cls.classid",
    "hugetlb.2MB.limit_in_bytes",
    "hugetlb.1GB.limit_in_bytes",
    "rdma.max",
];
const LIMITS_V2: [&str; 24] = [
    "cpu.weight",
    "cpu.max",
    "cpu.max.burst",
    "cpu.idle",
    "cpu.uclamp.min",
    "cpu.uclamp.max",
    "cpuset.cpus",
    "cpuset.mems",
    "cpuset.cpus.partition",
    "memory.min",
    "memory.low",
    "memory.high",
    "memory.max",
    "memory.swap.high",
    "memory.swap.max",
    "memory.oom.group",
    "pids.max",
    "io.weight",
    "io.bfq.weight",
    "io.max",
    "io.latency",
    "hugetlb.2MB.max",
    "hugetlb.1GB.max",
    "rdma.max",
];

/// The groups of a container that has ended.
#[derive(Debug)]
pub struct KeptGroups {
    cgroups_path: String,
    directories: Vec<PathBuf>,
    limits: Vec<Limit>,
}

/// What a file contained when the container's last process had ended.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Limit {
    path: PathBuf,
    text: String,
}

/// Directories whose content a command shall not see.
#[derive(Debug, Clone)]
pub struct Hidden(Arc<[CString]>);

impl KeptGroups {
    /// Those at `cgroups_path` of the spec, if they are the ones that the container's process was in. `None` also for a path that
    /// systemd names: it removes a scope with its last process.
    pub async fn of(cgroups_path: &str, cgroup: &Cgroup) -> Option<Self> {
        if !cgroups_path.starts_with('/') || !cgroup.exists() {
            return None;
        }
        let found = Found::at(cgroups_path).ok().flatten()?;
        let directories: Vec<_> = found.directories.iter().cloned().collect();
        // Where a hierarchy itself is above it, hiding that would hide the hierarchy.
        let is_top = |directory: &PathBuf| directory.parent().is_none_or(is_mount_point);
        let is_its = cgroup.process_directory().is_some_and(|own| directories.iter().any(|one| one == own));
        if !is_its || directories.iter().any(is_top) {
            return None;
        }
        // A runtime refuses to make a process in a frozen group.
        cgroup.thaw_all().await;
        let files = match cgroup {
            Cgroup::V1(_) => LIMITS_V1,
            Cgroup::V2(_) => LIMITS_V2,
        };
        let cgroups_path = cgroups_path.to_owned();
        // On a thread of its own: a container may have made thousands of groups.
        let kept = helper_thread::run("groups", move || {
            abandoned::remove_inner_groups(&found.directories);
            let read = |file: &&str| directories.iter().find_map(|group| Limit::read(group.join(file)));
            let limits = files.iter().filter_map(read).collect();
            Ok(Self { cgroups_path, directories, limits })
        });
        kept.await.inspect_err(|error| warn!(%error, "the container's groups are not kept")).ok()
    }

    /// What a runtime's `delete` must not see, or it removes the groups. It takes a group that is not there for removed.
    pub fn hidden(&self) -> Hidden {
        let parents = self.directories.iter().filter_map(|group| group.parent());
        Hidden(parents.filter_map(|parent| CString::new(parent.as_os_str().as_bytes()).ok()).collect())
    }

    /// Writes again what the runtime's `create` has overwritten. On a thread of its own: a lower limit of memory makes the kernel
    /// reclaim some.
    pub async fn restore(&self) {
        let limits = self.limits.clone();
        let restored = helper_thread::run("limits", move || {
            restore(&limits);
            Ok(())
        });
        if let Err(error) = restored.await {
            warn!(%error, group = self.cgroups_path, "the limits that were written past the shim are not restored");
        }
    }

    /// Whether they are still there.
    pub fn exist(&self) -> bool {
        self.directories.iter().all(|group| group.exists())
    }
}

fn is_mount_point(directory: &Path) -> bool {
    let device = |path: &Path| fs::metadata(path).map(|it| it.dev()).ok();
    directory.parent().is_none_or(|above| device(above) != device(directory))
}

fn restore(limits: &[Limit]) {
    let mut left: Vec<&Limit> = limits.iter().collect();
    // A limit of memory is below that with swap, a period above its quota: what fails first may fit later.
    for _ in 0..2 {
        left.retain(|limit| limit.write().is_err());
    }
    for limit in left {
        warn!(file = %limit.path.display(), wanted = limit.text.trim(), "a limit that was written past the shim cannot be restored");
    }
}

impl Limit {
    fn read(path: PathBuf) -> Option<Self> {
        let text = at_once::read(&path).ok()?;
        Some(Self { path, text })
    }

    fn write(&self) -> io::Result<()> {
        let now = at_once::read(&self.path)?;
        if now == self.text {
            return Ok(());
        }
        // The kernel takes one line at a time, where there is one for each device.
        for line in self.text.lines() {
            fs::write(&self.path, line)?;
        }
        Ok(())
    }
}

impl Hidden {
    /// Hides them from this process and its children, by mounts in a namespace of mounts of its own. What is unmounted elsewhere
    /// meanwhile is unmounted there too. Called between fork and exec.
    ///
    /// # Errors
    /// The kernel's.
    pub fn hide(&self) -> io::Result<()> {
        let none = None::<&std::ffi::CStr>;
        unshare(CloneFlags::CLONE_NEWNS)?;
        mount(none, c"/", none, MsFlags::MS_SLAVE | MsFlags::MS_REC, none)?;
        for directory in self.0.iter() {
            mount(Some(c"none"), directory.as_c_str(), Some(c"tmpfs"), MsFlags::MS_RDONLY, none)?;
        }
        Ok(())
    }
}
