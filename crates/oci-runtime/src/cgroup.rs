//! The control groups of a container: where they are, their statistics, and which processes are in them.
//!
//! Reads the kernel's files directly, v1 (also hybrid) and v2. The OCI runtime makes, limits and removes the groups;
//! podshim removes only groups of which the runtime has no record (`abandoned`).

use std::{
    collections::BTreeSet,
    fs,
    io::{self, Read, Write},
    path::{Path, PathBuf},
    time::Duration,
};

use nix::unistd::Pid;
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::process::{Process, SignalNumber};

pub mod abandoned;
mod files;
mod freezer;
pub mod oom;
pub mod v1;
pub mod v2;

pub use oom::OomWatch;

use files::{CgroupMount, Directory};

#[cfg(test)]
mod tests;

const MOUNT_POINT: &str = "/sys/fs/cgroup";
const KILL_POLL_FIRST: Duration = Duration::from_millis(1);
const KILL_POLL_LONGEST: Duration = Duration::from_millis(50);
/// Passes over a group whose members fork while their values are lowered.
const OOM_SCORE_PASSES: usize = 10;
/// How many pidfds are open at a time; the limit of open files may be as low as 1024.
const KILL_BATCH: usize = 256;

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

/// The end of [`Cgroup::kill_remaining`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KillOutcome {
    /// Nothing is left.
    Empty,
    /// These were still there at the deadline (in uninterruptible sleep, for example), or were never touched because
    /// the shim itself is among them.
    Remaining(BTreeSet<Pid>),
}

impl Cgroup {
    /// The groups that a running process is in.
    ///
    /// Call it for a container's init after `create`: before, the init may still be in the shim's groups. Fails with
    /// `NotFound` if the process is gone.
    pub fn of_pid(pid: Pid) -> io::Result<Self> {
        let membership = fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
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
    fn at_customary_place(pid: Pid, membership: &str) -> Option<Self> {
        let cgroup = Self::locate(membership, &files::customary_mounts(membership))?;
        let complete = match &cgroup {
            Self::V2(_) => true,
            Self::V1(hierarchies) => hierarchies.directories().all(Path::is_dir),
        };
        let is_member = members_of(cgroup.process_directory()?).contains(&pid);
        (complete && is_member).then_some(cgroup)
    }

    fn locate(membership: &str, mounts: &[CgroupMount]) -> Option<Self> {
        // v2 is mounted alone at the customary place; on a hybrid host the controllers are in v1.
        let unified_alone = mounts.iter().any(|mount| mount.is_v2 && mount.point == Path::new(MOUNT_POINT))
            || mounts.iter().all(|mount| mount.is_v2);
        if unified_alone {
            let path = membership.lines().find_map(|line| line.strip_prefix("0::"))?;
            let mount = mounts.iter().find(|mount| mount.is_v2)?;
            return Some(Self::V2(mount.directory_of(path)));
        }
        Some(Self::V1(Box::new(v1::Hierarchies::locate(membership, mounts))))
    }

    /// Whether the group exists: systemd removes a scope with its last process, runc only in its delete.
    pub fn exists(&self) -> bool {
        self.process_directory().is_some_and(Path::exists)
    }

    /// Whether a process is in the group or in one below it. False if the shim is in it too: then the group is not the
    /// container's own, and does not show which process is the container's.
    pub fn holds(&self, pid: Pid) -> bool {
        let Some(own) = self.process_directory() else { return false };
        let is_below = |pid| {
            Self::of_pid(pid)
                .is_ok_and(|cgroup| cgroup.process_directory().is_some_and(|path| path.starts_with(own)))
        };
        is_below(pid) && !is_below(nix::unistd::getpid())
    }

    /// The current statistics. Absent files and controllers count as nothing.
    pub fn stats(&self) -> Stats {
        match self {
            Self::V1(hierarchies) => Stats::V1(Box::new(v1::Stats::read(hierarchies))),
            Self::V2(directory) => Stats::V2(Box::new(v2::Stats::read(directory))),
        }
    }

    /// All processes in the group and the groups below it; empty when the group is gone.
    pub fn pids(&self) -> BTreeSet<Pid> {
        let mut pids = BTreeSet::new();
        if let Some(directory) = self.process_directory() {
            collect_pids(directory, &mut pids);
        }
        pids
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

    /// Kills everything in the group until it is empty or the deadline passes.
    ///
    /// For what a container's init leaves behind if it does not have its own pid namespace, and before a restart in
    /// place (rule R6). Cancel-safe: what was killed stays killed.
    pub async fn kill_remaining(&self, deadline: Instant) -> KillOutcome {
        // A runtime that makes no cgroups leaves the container in the shim's group, which may be the host's root group.
        let members = self.pids();
        if members.contains(&nix::unistd::getpid()) {
            warn!("the container is in the shim's own cgroup: processes that it left behind are not killed");
            return KillOutcome::Remaining(members);
        }
        if let Self::V2(directory) = self {
            // From Linux 5.14: one write, which no fork can outrun. Without it the loop below does the work.
            if let Err(error) = fs::write(directory.join("cgroup.kill"), "1") {
                debug!(%error, directory = %directory.display(), "cannot write cgroup.kill: the shim kills the processes one by one");
            }
        }
        let mut pause = KILL_POLL_FIRST;
        loop {
            let pids = self.pids();
            if pids.is_empty() {
                return KillOutcome::Empty;
            }
            if Instant::now() >= deadline {
                return KillOutcome::Remaining(pids);
            }
            self.kill_members().await;
            // No event reports that a v1 group has become empty.
            tokio::time::sleep_until(deadline.min(Instant::now() + pause)).await;
            pause = (pause * 2).min(KILL_POLL_LONGEST);
        }
    }

    /// Sends a signal to every process that is in the group now (rule K14). `runc kill --all` did so until runc 1.2,
    /// which ignores that option.
    ///
    /// # Errors
    /// `Unsupported` if the shim itself is in the group: then the group is not the container's own.
    pub async fn signal_members(&self, signal: SignalNumber) -> io::Result<()> {
        let members = self.pids();
        if members.contains(&nix::unistd::getpid()) {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "the container has no cgroup of its own"));
        }
        // As `runc kill --all` did, for the same reason as in `kill_members`. A container that its user has paused
        // stays frozen.
        let _frozen = match self.freeze_state() {
            FreezeState::Thawed => self.freeze().await,
            FreezeState::Freezing | FreezeState::Frozen => None,
        };
        self.signal_pinned(self.pids(), signal).await;
        Ok(())
    }

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

    async fn kill_members(&self) {
        // v1 has no cgroup.kill, and a fork bomb makes members faster than they can be signalled. SIGKILL takes effect
        // when the guard thaws the group.
        let _frozen = match self {
            Self::V1(_) => self.freeze().await,
            Self::V2(_) => None,
        };
        self.signal_pinned(self.pids(), SignalNumber::KILL).await;
    }

    async fn signal_pinned(&self, pids: BTreeSet<Pid>, signal: SignalNumber) {
        let pids: Vec<Pid> = pids.into_iter().collect();
        for batch in pids.chunks(KILL_BATCH) {
            // These are not the shim's children: pin the pids first, then check that they still are members.
            let pinned: Vec<Process> = batch.iter().filter_map(|pid| Process::open(*pid).ok()).collect();
            let members = self.pids();
            for process in pinned.iter().filter(|process| members.contains(&process.pid())) {
                if let Err(error) = process.signal(signal) {
                    debug!(pid = %process.pid(), %error, "cannot signal a process of a cgroup");
                }
            }
            // A group of thousands must not occupy the owner's only thread.
            tokio::task::yield_now().await;
        }
    }

    fn process_directory(&self) -> Option<&Path> {
        match self {
            Self::V2(directory) => Some(directory),
            Self::V1(hierarchies) => hierarchies.process_directory(),
        }
    }
}

/// The processes directly in a group, not in those below it.
fn members_of(directory: &Path) -> Vec<Pid> {
    // A group may vanish between listing and reading: then it has no members.
    let text = Directory::open(directory).and_then(|group| group.text("cgroup.procs")).unwrap_or_default();
    // 0 means a process that is not visible in the shim's pid namespace; it cannot be signalled.
    let numbers = text.lines().filter_map(|line| line.parse::<i32>().ok()).filter(|number| *number > 0);
    numbers.map(Pid::from_raw).collect()
}

fn collect_pids(directory: &Path, pids: &mut BTreeSet<Pid>) {
    pids.extend(members_of(directory));
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            collect_pids(&entry.path(), pids);
        }
    }
}
