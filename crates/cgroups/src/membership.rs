//! The groups of a container as a helper process needs them: it enters them, so that its work is charged to the container,
//! and it tells the container's processes from others.
//!
//! Owns which groups a helper enters. Compares the kernel's words for a process: the list of a group's processes is as
//! long as the container likes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::unistd::Pid;
use threads::at_once;

use super::files::MOUNT_POINT;
use super::group::Cgroup;

#[cfg(test)]
mod tests;

/// Between two parts of the encoded form.
const SEPARATOR: char = '\0';

/// Where a container's processes are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    init: Pid,
    /// One controller of the hierarchy that says who belongs to the container; empty for v2.
    controller: String,
    /// The container's path in it, as `/proc/<pid>/cgroup` has it.
    path: String,
    /// What a helper enters, in this order.
    directories: Vec<PathBuf>,
    /// The shim's own groups in the same hierarchies.
    homes: Vec<PathBuf>,
}

impl Membership {
    /// That of a container whose init runs. `None` if it has no groups of its own: where the shim is too, they do not show
    /// which process is the container's.
    pub fn of(cgroup: &Cgroup, init: Pid) -> Option<Self> {
        let text = at_once::read(format!("/proc/{init}/cgroup")).ok()?;
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let (controller, entered) = match cgroup {
            Cgroup::V2(directory) => ("", vec![("", directory.clone())]),
            Cgroup::V1(groups) => {
                // Not `freezer`: a frozen process of v1 cannot be killed. Not `pids`: its number is the container's. `cpu`
                // comes last: a process that waits for its quota must not hold the kernel's lock for the next group.
                let processors = path_in(&text, "cpuset")
                    .map(|path| Path::new(MOUNT_POINT).join("cpuset").join(path.trim_start_matches('/')));
                let charged = [
                    ("cpuset", processors.filter(|directory| directory.is_dir())),
                    ("memory", groups.memory.clone()),
                    ("blkio", groups.blkio.clone()),
                    ("cpuacct", groups.cpuacct.clone()),
                    ("cpu", groups.cpu.clone()),
                ];
                let charged = charged.into_iter().filter_map(|(name, directory)| Some((name, directory?)));
                (groups.process_controller()?, charged.collect())
            }
        };
        let homes = entered.iter().filter_map(|(controller, directory)| {
            home_beside(directory, path_in(&text, controller)?, path_in(&own, controller)?)
        });
        let homes = homes.collect();
        let directories = entered.into_iter().map(|(_, directory)| directory).collect();
        let (controller, path) = (controller.to_owned(), path_in(&text, controller)?.to_owned());
        let found = Self { init, controller, path, directories, homes };
        (!found.is_at(&own)).then_some(found)
    }

    /// Whether a process is in the container's groups or below them.
    pub fn has(&self, pid: Pid) -> bool {
        at_once::read(format!("/proc/{pid}/cgroup")).is_ok_and(|text| self.is_at(&text))
    }

    fn is_at(&self, text: &str) -> bool {
        path_in(text, &self.controller).is_some_and(|path| Path::new(path).starts_with(&self.path))
    }

    /// Moves the calling process, which has one thread, into the container's groups.
    ///
    /// # Errors
    /// The kernel's; the process may be in some of them then.
    pub fn enter(&self) -> io::Result<()> {
        // v1: as a thread that moves itself. From Linux 5.5 on that takes no lock of all forks, and waits for no grace period: 0.1 ms
        // for each group; `cgroup.procs` takes 16 ms for the first one.
        let file = if self.controller.is_empty() { "cgroup.procs" } else { "tasks" };
        for directory in &self.directories {
            match at_once::write(directory.join(file), "0") {
                // v2: the container has groups of its own below, and no process may be beside them (systemd in it).
                Err(error) if error.raw_os_error() == Some(Errno::EBUSY as i32) => {
                    at_once::write(self.directory_of_init(directory)?.join("cgroup.procs"), "0")?;
                }
                entered => entered?,
            }
        }
        Ok(())
    }

    /// Moves a process back into the shim's groups that has been killed and does not end: a file system keeps it, and it would
    /// keep the container's groups from being removed. The caller has not reaped it.
    pub fn expel(&self, pid: Pid) {
        for home in &self.homes {
            if let Err(error) = fs::write(home.join("cgroup.procs"), pid.to_string()) {
                tracing::debug!(%pid, %error, group = %home.display(), "cannot move a stuck helper");
            }
        }
    }

    fn directory_of_init(&self, directory: &Path) -> io::Result<PathBuf> {
        let text = at_once::read(format!("/proc/{}/cgroup", self.init))?;
        let below =
            path_in(&text, &self.controller).and_then(|path| Path::new(path).strip_prefix(&self.path).ok());
        below.map(|below| directory.join(below)).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// As text, for a helper that runs already.
    pub fn encode(&self) -> String {
        let mut text = format!("{}\0{}\0{}", self.init, self.controller, self.path);
        for paths in [&self.directories, &self.homes] {
            text.push(SEPARATOR);
            text.push_str(&paths.len().to_string());
            for path in paths {
                text.push(SEPARATOR);
                text.push_str(&path.to_string_lossy());
            }
        }
        text
    }

    /// The reverse of [`Self::encode`].
    pub fn decode(text: &str) -> Option<Self> {
        let mut parts = text.split(SEPARATOR);
        let init = Pid::from_raw(parts.next()?.parse().ok()?);
        let (controller, path) = (parts.next()?.to_owned(), parts.next()?.to_owned());
        let mut paths = || {
            let count = parts.next()?.parse().ok()?;
            Some(parts.by_ref().take(count).map(PathBuf::from).collect())
        };
        Some(Self { init, controller, path, directories: paths()?, homes: paths()? })
    }
}

/// The group `own` in the hierarchy in which the group `path` is `directory`.
fn home_beside(directory: &Path, path: &str, own: &str) -> Option<PathBuf> {
    let relative = |path: &'_ str| path.trim_start_matches('/').to_owned();
    let depth =
        directory.ends_with(relative(path)).then(|| Path::new(&relative(path)).components().count())?;
    let home = directory.ancestors().nth(depth)?.join(relative(own));
    home.is_dir().then_some(home)
}

/// The path in the hierarchy of a controller (empty: v2), in the text of a `/proc/<pid>/cgroup`.
fn path_in<'text>(text: &'text str, controller: &str) -> Option<&'text str> {
    text.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, path) = (fields.next()?, fields.next()?);
        controllers.split(',').any(|one| one == controller).then_some(path)
    })
}
