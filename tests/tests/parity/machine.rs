//! What a run leaves on the machine, of every kind that a shim makes: processes, mounts, cgroups, sockets, files.

use std::path::{Path, PathBuf};

use anyhow::Result;

/// Where to look for the traces of one run.
#[derive(Clone, Debug)]
pub struct Traces {
    pub namespace: String,
    /// The run's own directory: bundles, pipes, sockets.
    pub directory: PathBuf,
    pub cgroup: String,
    pub sockets: Vec<PathBuf>,
}

impl Traces {
    /// All traces, as (kind, what), in order.
    pub fn find(&self) -> Result<Vec<(String, String)>> {
        let mut found = Vec::new();
        for pid in self.processes()? {
            let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let command = String::from_utf8_lossy(&command).replace('\0', " ");
            found.push(("process".to_owned(), command));
        }
        let directory = self.directory.to_string_lossy();
        let mounts = std::fs::read_to_string("/proc/thread-self/mountinfo")?;
        for line in mounts.lines().filter(|line| line.contains(&*directory)) {
            found.push(("mount".to_owned(), line.split(' ').nth(4).unwrap_or_default().to_owned()));
        }
        for cgroup in self.cgroups() {
            found.push(("cgroup".to_owned(), cgroup.to_string_lossy().into_owned()));
        }
        for socket in self.sockets.iter().filter(|path| path.exists()) {
            found.push(("socket".to_owned(), socket.to_string_lossy().into_owned()));
        }
        for state in ["/run/containerd/runc", "/run/podshim"] {
            let state = Path::new(state).join(&self.namespace);
            found.extend(entries(&state, "").into_iter().map(|name| ("state".to_owned(), name)));
        }
        for name in entries(&self.directory.join("bundles"), "") {
            found.push(("file".to_owned(), name));
        }
        found.sort();
        Ok(found)
    }

    /// The live processes of the run: the shim is found by its command line, containers by their cgroup.
    pub fn processes(&self) -> Result<Vec<i32>> {
        let mut pids = Vec::new();
        for entry in std::fs::read_dir("/proc")?.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            // It may end while this looks: then it is not left.
            let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let cgroups = std::fs::read_to_string(entry.path().join("cgroup")).unwrap_or_default();
            let is_ours = String::from_utf8_lossy(&command).contains(&self.namespace)
                || cgroups.lines().any(|line| line.contains(&self.cgroup));
            if is_ours && e2e::instance::is_alive(pid) {
                pids.push(pid);
            }
        }
        Ok(pids)
    }

    /// The run's cgroups that exist below its own, in every hierarchy.
    pub fn cgroups(&self) -> Vec<PathBuf> {
        let root = Path::new("/sys/fs/cgroup");
        let hierarchies = std::fs::read_dir(root).into_iter().flatten().flatten();
        // Some of v1's controllers are links to others.
        let hierarchies = hierarchies
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| entry.path())
            .chain([root.to_owned()]);
        let own = hierarchies.map(|hierarchy| hierarchy.join(self.cgroup.trim_start_matches('/')));
        let mut found: Vec<_> = own
            .flat_map(|own| std::fs::read_dir(own).into_iter().flatten().flatten())
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| entry.path())
            .collect();
        found.sort();
        found.dedup();
        found
    }
}

/// The names below a directory, sorted. Links are not followed, and `rootfs`, where a file system is mounted, is not
/// listed.
pub fn entries(directory: &Path, prefix: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) && entry.file_name() != "rootfs" {
            found.extend(entries(&entry.path(), &format!("{name}/")));
        }
        found.push(name);
    }
    found.sort();
    found
}
