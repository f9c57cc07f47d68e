//! The control groups of a sandbox: made and limited before its process exists, which puts itself into them.
//!
//! Owns the making. What removes them is `cgroup::abandoned`, for no OCI runtime knows of them.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use cgroups::{Cgroup, CgroupMount, CgroupVersion, cgroup_mounts, is_unified};
use nix::unistd::{Pid, write};

use super::limits::{CpuTime, Limits, PERIOD_OF_V1, QUOTA_OF_V1, Setting};

/// The hierarchies of v1 that an OCI runtime puts a container into.
const CONTROLLERS: [&str; 15] = [
    "blkio",
    "cpu",
    "cpuacct",
    "cpuset",
    "devices",
    "freezer",
    "hugetlb",
    "memory",
    "misc",
    "name=systemd",
    "net_cls",
    "net_prio",
    "perf_event",
    "pids",
    "rdma",
];

/// The groups of one sandbox.
#[derive(Debug)]
pub struct Groups(Vec<Group>);

/// The ways into the groups of a sandbox.
///
/// A move keeps all of the machine's processes from forking and ending, for 5 to 25 ms (Linux 5.5 and later), but for that of a thread
/// that moves itself in cgroup v1.
#[derive(Debug)]
pub struct Entrances {
    /// Into which a process of one thread writes `0`; in cgroup v1 those of threads.
    pub files: Vec<File>,
    /// The group of cgroup v2, in which the kernel can make a process.
    pub(super) unified: Option<File>,
}

/// A group's processes, and in v1 its threads.
const PROCESSES: &str = "cgroup.procs";
const THREADS_OF_V1: &str = "tasks";

#[derive(Debug)]
struct Group {
    directory: PathBuf,
    mount: CgroupMount,
}

impl Groups {
    /// The groups of that path in every hierarchy, also where they do not exist.
    ///
    /// # Errors
    /// The table of mounts cannot be read, or has no control groups.
    pub fn at(path: &str) -> io::Result<Self> {
        Self::among(cgroup_mounts(&fs::read_to_string("/proc/self/mountinfo")?), path)
    }

    fn among(mut mounts: Vec<CgroupMount>, path: &str) -> io::Result<Self> {
        let is_used = |mount: &CgroupMount| {
            mount.controllers.iter().any(|one| CONTROLLERS.contains(&one.as_str())) && !mount.is_v2()
        };
        match is_unified(&mounts) {
            true => mounts.retain(CgroupMount::is_v2),
            false => mounts.retain(is_used),
        }
        // A hierarchy may be mounted at several places.
        let mut seen = BTreeSet::new();
        mounts.retain(|mount| seen.insert(mount.controllers.clone()));
        if mounts.is_empty() {
            return Err(io::Error::new(io::ErrorKind::NotFound, "no control groups are mounted"));
        }
        let group = |mount: CgroupMount| Group { directory: mount.directory_of(path), mount };
        Ok(Self(mounts.into_iter().map(group).collect()))
    }

    /// One of them that has processes in it, or in a group inside of it: then they are another container's. At the sandbox's end
    /// all of them are killed.
    pub fn occupied(&self) -> Option<&Path> {
        // Each hierarchy by itself: another caller may have made a group in one of them alone.
        let is_occupied = |directory: &&Path| !Cgroup::V2(directory.to_path_buf()).members().are_none();
        self.0.iter().map(|group| &*group.directory).find(is_occupied)
    }

    /// Makes the groups that are missing, and limits them.
    ///
    /// # Errors
    /// The first that cannot be made or limited. Those that were made stay: the caller removes them.
    pub fn make(&self, limits: &Limits) -> io::Result<()> {
        for group in &self.0 {
            group.make().map_err(|error| with_path(&group.directory, &error))?;
        }
        self.limit(limits)
    }

    /// Writes the limits.
    ///
    /// # Errors
    /// The first that the kernel does not take, with its file. A controller that is not mounted is an error too.
    pub fn limit(&self, limits: &Limits) -> io::Result<()> {
        let limits = limits.beside(|| self.cpu_time());
        in_order(&limits, self.version(), |setting| self.write(setting))
    }

    fn write(&self, Setting { controller, file, text }: &Setting) -> io::Result<()> {
        let is_v2 = self.version() == CgroupVersion::V2;
        let group = self.0.iter().find(|group| is_v2 || group.has(controller));
        let missing =
            || io::Error::new(io::ErrorKind::NotFound, format!("no {controller} controller is mounted"));
        let path = group.ok_or_else(missing)?.directory.join(file);
        // Without O_CREAT, for which the kernel answers that the caller has no right to make a file where it has none.
        let opened = OpenOptions::new().write(true).open(&path);
        opened.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|error| with_path(&path, &error))
    }

    /// `None` without that controller.
    pub fn cpu_time(&self) -> Option<CpuTime> {
        let read =
            |file: &str| self.0.iter().find_map(|group| fs::read_to_string(group.directory.join(file)).ok());
        match self.version() {
            CgroupVersion::V1 => Some(CpuTime {
                quota: read(QUOTA_OF_V1)?.trim().parse().ok()?,
                period: read(PERIOD_OF_V1)?.trim().parse().ok()?,
            }),
            CgroupVersion::V2 => CpuTime::of_v2(&read("cpu.max")?),
        }
    }

    /// The version of all groups; on a hybrid node v1, which has the controllers.
    pub fn version(&self) -> CgroupVersion {
        self.0.first().map_or(CgroupVersion::V1, |group| group.mount.version)
    }

    /// Puts a process into the groups, unless systemd has: in cgroup v2 a move waits for all of the machine's processes that fork or
    /// end, and one to where the process is already does too.
    ///
    /// # Errors
    /// The first that does not take it.
    pub fn put(&self, pid: Pid) -> io::Result<()> {
        if self.version() == CgroupVersion::V2 && self.has(pid) {
            return Ok(());
        }
        for file in self.open_each(PROCESSES)? {
            write(file, pid.to_string().as_bytes())?;
        }
        Ok(())
    }

    fn has(&self, pid: Pid) -> bool {
        self.0.iter().all(|group| Cgroup::V2(group.directory.clone()).pids().contains(&pid))
    }

    /// The ways into the groups.
    ///
    /// # Errors
    /// The first that cannot be opened.
    pub fn entrances(&self) -> io::Result<Entrances> {
        // v2 has one group.
        let (file, unified) = match self.version() {
            CgroupVersion::V2 => (PROCESSES, self.0.first()),
            CgroupVersion::V1 => (THREADS_OF_V1, None),
        };
        let files = self.open_each(file)?;
        // Without it the child moves itself.
        Ok(Entrances { files, unified: unified.and_then(|group| File::open(&group.directory).ok()) })
    }

    fn open_each(&self, file: &str) -> io::Result<Vec<File>> {
        let open = |group: &Group| {
            let path = group.directory.join(file);
            OpenOptions::new().write(true).open(&path).map_err(|error| with_path(&path, &error))
        };
        self.0.iter().map(open).collect()
    }
}

impl Group {
    fn has(&self, controller: &str) -> bool {
        self.mount.controllers.iter().any(|one| one == controller)
    }

    /// The groups from the mount down to this one, which included.
    fn lineage(&self) -> Vec<&Path> {
        let mut above: Vec<_> =
            self.directory.ancestors().take_while(|path| *path != self.mount.point).collect();
        above.reverse();
        above
    }

    fn make(&self) -> io::Result<()> {
        let mut parent: &Path = &self.mount.point;
        for directory in self.lineage() {
            if self.mount.is_v2() {
                delegate(parent);
            }
            match fs::create_dir(directory) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            if self.has("cpuset") && !self.mount.is_v2() {
                inherit(parent, directory)?;
            }
            parent = directory;
        }
        Ok(())
    }
}

/// v2: gives the children of a group every controller that it has. One that cannot be given is missed by a limit that needs
/// it: then that fails.
fn delegate(group: &Path) {
    let controllers = fs::read_to_string(group.join("cgroup.controllers")).unwrap_or_default();
    let given = fs::read_to_string(group.join("cgroup.subtree_control")).unwrap_or_default();
    for controller in
        controllers.split_whitespace().filter(|one| !given.split_whitespace().any(|other| other == *one))
    {
        let _ = fs::write(group.join("cgroup.subtree_control"), format!("+{controller}"));
    }
}

/// v1: a new group of cpuset takes no process before it has processors and memory nodes.
fn inherit(parent: &Path, group: &Path) -> io::Result<()> {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        if fs::read_to_string(group.join(file))?.trim().is_empty() {
            fs::write(group.join(file), fs::read_to_string(parent.join(file))?)?;
        }
    }
    Ok(())
}

/// Writes each limit. One that the kernel takes only after another is written once more behind all.
fn in_order(
    limits: &Limits,
    version: CgroupVersion,
    mut write: impl FnMut(&Setting) -> io::Result<()>,
) -> io::Result<()> {
    let mut again = None;
    for setting in limits.settings(version) {
        match write(&setting) {
            Err(error)
                if error.kind() == io::ErrorKind::InvalidInput && limits.waits_for_another(&setting) =>
            {
                again = Some(setting);
            }
            written => written?,
        }
    }
    again.iter().try_for_each(write)
}

fn with_path(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::limits::understood;

    const V2: &str = "30 20 0:5 / /sys/fs/cgroup rw - cgroup2 cgroup rw,nsdelegate\n";

    #[test]
    fn a_hierarchy_of_v1_beside_v2_is_another_programs() {
        for (table, expected) in [
            (V2.to_owned(), "/sys/fs/cgroup/pod"),
            (format!("{V2}31 30 0:6 / /mnt/x rw - cgroup none rw,name=systemd\n"), "/sys/fs/cgroup/pod"),
            (format!("31 30 0:6 / /vpn/net_cls rw - cgroup none rw,net_cls\n{V2}"), "/sys/fs/cgroup/pod"),
            (
                "32 30 0:7 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                 33 30 0:8 / /sys/fs/cgroup/unified rw - cgroup2 cgroup rw\n"
                    .to_owned(),
                "/sys/fs/cgroup/cpu/pod",
            ),
        ] {
            let groups = Groups::among(cgroup_mounts(&table), "/pod").unwrap();
            let directories: Vec<_> = groups.0.iter().map(|group| &*group.directory).collect();
            assert_eq!(directories, [Path::new(expected)], "{table}");
        }
    }

    /// What is written of `document` if the kernel answers as `kernel` does to a file and what was written before it.
    fn written(
        version: CgroupVersion,
        document: &serde_json::Value,
        kernel: impl Fn(&str, &str) -> Option<io::ErrorKind>,
    ) -> io::Result<String> {
        let mut done = String::new();
        in_order(&understood(document).unwrap(), version, |setting| {
            if let Some(refused) = kernel(setting.file, &done) {
                return Err(refused.into());
            }
            done += &format!("{}={} ", setting.file, setting.text);
            Ok(())
        })
        .map(|()| done)
    }

    #[test]
    fn a_limit_that_waits_for_another_is_written_after_it() {
        let waits = |needs: &'static [(&'static str, &'static str)]| {
            move |file: &str, done: &str| {
                let has_to_wait = |(first, other): &(&str, &str)| *first == file && !done.contains(other);
                needs.iter().any(has_to_wait).then_some(io::ErrorKind::InvalidInput)
            }
        };
        let cpu = json!({"cpu": {"period": 5000, "quota": 2000}});
        let needs = waits(&[("cpu.cfs_period_us", "cpu.cfs_quota_us")]);
        let found = written(CgroupVersion::V1, &cpu, needs).unwrap();
        assert_eq!(found, "cpu.cfs_quota_us=2000 cpu.cfs_period_us=5000 ");
        // One that no other limit helps.
        let pids = |file: &str, _: &str| (file == "pids.max").then_some(io::ErrorKind::InvalidInput);
        assert!(written(CgroupVersion::V2, &json!({"pids": {"limit": 5}}), pids).is_err());
    }
}
