//! Where a container's groups are, and what the kernel's files in them say: members, statistics, whether they are frozen.
//!
//! Only reads.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::Pid;
use threads::at_once;

use super::files::{self, CgroupMount, Directory};
use super::v1;
use super::v2;

/// The groups of one container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cgroup {
    /// One directory for everything.
    V2(PathBuf),
    /// A directory per controller.
    V1(Box<v1::Hierarchies>),
}

/// Statistics in the form of containerd's message for the same cgroup version.
#[derive(Debug, Clone, PartialEq)]
pub enum Stats {
    /// `io.containerd.cgroups.v1.Metrics`.
    V1(Box<v1::Stats>),
    /// `io.containerd.cgroups.v2.Metrics`.
    V2(Box<v2::Stats>),
}

/// Whether the processes of the group run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FreezeState {
    /// They run.
    Thawed,
    /// The kernel is still freezing them.
    Freezing,
    /// None of them runs.
    Frozen,
}

impl Cgroup {
    /// The groups that a running process is in.
    ///
    /// Call it for a container's init after `create`: before, the init may still be in the shim's groups.
    ///
    /// # Errors
    /// `NotFound` if the process is gone.
    pub fn of_pid(pid: Pid) -> io::Result<Self> {
        let membership = at_once::read(format!("/proc/{pid}/cgroup"))?;
        // Avoid the mount table: it grows with the node's pods, and with 160 of them it took an eighth of a shim's
        // processor time.
        if let Some(cgroup) = Self::at_customary_place(pid, &membership) {
            return Ok(cgroup);
        }
        let mountinfo = fs::read_to_string("/proc/self/mountinfo")?;
        Self::locate(&membership, &files::cgroup_mounts(&mountinfo)).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotFound,
                format!("no cgroup file system is mounted for process {pid}"),
            )
        })
    }

    /// The groups below the mount point that every distribution uses, if the process is really in them.
    pub(super) fn at_customary_place(pid: Pid, membership: &str) -> Option<Self> {
        let cgroup = Self::locate(membership, &files::customary_mounts(membership))?;
        let complete = match &cgroup {
            Self::V2(_) => true,
            Self::V1(hierarchies) => hierarchies.directories().all(Path::is_dir),
        };
        let is_member = members_of(cgroup.process_directory()?).ok()?.contains(&pid);
        (complete && is_member).then_some(cgroup)
    }

    /// The group of that path in every hierarchy of the node; none of it need exist.
    ///
    /// # Errors
    /// The kernel's, or the path is no group's.
    pub fn at_path(path: &str) -> io::Result<Self> {
        if !path.starts_with('/') || path.split('/').any(|part| part == "..") {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                format!("{path:?} is no path of a cgroup"),
            ));
        }
        // The shim's own hierarchies, with another path.
        let own = fs::read_to_string("/proc/self/cgroup")?;
        let line = |line: &str| {
            let mut parts = line.splitn(3, ':');
            Some(format!("{}:{}:{path}\n", parts.next()?, parts.next()?))
        };
        let membership: String = own.lines().filter_map(line).collect();
        let mountinfo = fs::read_to_string("/proc/self/mountinfo")?;
        Self::locate(&membership, &files::cgroup_mounts(&mountinfo))
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no cgroup file system is mounted"))
    }

    pub(super) fn locate(membership: &str, mounts: &[CgroupMount]) -> Option<Self> {
        if files::is_unified(mounts) {
            let path = membership.lines().find_map(|line| line.strip_prefix("0::"))?;
            let mount = mounts.iter().find(|mount| mount.is_v2())?;
            return Some(Self::V2(mount.directory_of(path)));
        }
        Some(Self::V1(Box::new(v1::Hierarchies::locate(membership, mounts))))
    }

    /// Whether the group exists: systemd removes a scope with its last process, runc only in its delete.
    pub fn exists(&self) -> bool {
        self.process_directory().is_some_and(Path::exists)
    }

    /// What tells the group from a later one with the same path; `None` when it is gone.
    pub fn identity(&self) -> Option<(PathBuf, u64)> {
        let directory = self.process_directory()?;
        Some((directory.to_owned(), fs::metadata(directory).ok()?.ino()))
    }

    /// The current statistics. Absent files and controllers count as nothing.
    pub fn stats(&self) -> Stats {
        match self {
            Self::V1(hierarchies) => Stats::V1(Box::new(v1::Stats::read(hierarchies))),
            Self::V2(directory) => Stats::V2(Box::new(v2::Stats::read(directory))),
        }
    }

    /// All processes in the group and the groups below it, as far as they can be listed; empty when the group is gone.
    pub fn pids(&self) -> BTreeSet<Pid> {
        self.members().pids
    }

    /// The same, with what could not be listed.
    pub fn members(&self) -> Members {
        self.process_directory().map(Members::below).unwrap_or_default()
    }

    /// Whether the group is frozen; `Thawed` when there is no freezer.
    pub fn freeze_state(&self) -> FreezeState {
        match self {
            Self::V1(hierarchies) => {
                let group = hierarchies.freezer.as_deref().and_then(Directory::open);
                match group.and_then(|group| group.text("freezer.state")).as_deref().map(str::trim) {
                    Some("FROZEN") => FreezeState::Frozen,
                    Some("FREEZING") => FreezeState::Freezing,
                    _ => FreezeState::Thawed,
                }
            }
            Self::V2(directory) => {
                let Some(directory) = Directory::open(directory) else { return FreezeState::Thawed };
                let wanted = directory.number("cgroup.freeze") == Some(1);
                let events = directory.keyed("cgroup.events");
                match (events.get("frozen"), wanted) {
                    (1, _) => FreezeState::Frozen,
                    (_, true) => FreezeState::Freezing,
                    (_, false) => FreezeState::Thawed,
                }
            }
        }
    }

    pub(super) fn process_directory(&self) -> Option<&Path> {
        match self {
            Self::V2(directory) => Some(directory),
            Self::V1(hierarchies) => hierarchies.process_directory(),
        }
    }
}

/// The processes of a group and of those inside of it.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Members {
    pub(crate) pids: BTreeSet<Pid>,
    /// How many of these groups have a list that a process keeps from being read, by a lease.
    pub(crate) unread: usize,
}

impl Members {
    pub(super) fn below(directory: &Path) -> Self {
        let mut members = Self::default();
        members.add(directory);
        members
    }

    /// Whether no process is there for certain.
    pub fn are_none(&self) -> bool {
        self.pids.is_empty() && self.unread == 0
    }

    fn add(&mut self, directory: &Path) {
        match members_of(directory) {
            Ok(pids) => self.pids.extend(pids),
            Err(_) => self.unread += 1,
        }
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                self.add(&entry.path());
            }
        }
    }
}

/// The processes directly in a group, not in those below it.
///
/// # Errors
/// Only `WouldBlock`: a process has a lease on the list.
pub(super) fn members_of(directory: &Path) -> io::Result<Vec<Pid>> {
    let text = match Directory::open(directory).map(|group| group.read("cgroup.procs")) {
        Some(Err(error)) if error.kind() == io::ErrorKind::WouldBlock => return Err(error),
        // A group may vanish between listing and reading: then it has no members.
        None | Some(Err(_)) => String::new(),
        Some(Ok(text)) => text,
    };
    // 0 means a process that is not visible in the shim's pid namespace; it cannot be signalled.
    let numbers = text.lines().filter_map(|line| line.parse::<i32>().ok()).filter(|number| *number > 0);
    Ok(numbers.map(Pid::from_raw).collect())
}
