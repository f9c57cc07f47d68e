//! What a pod has on the node while it lives, and the check that nothing is left afterwards. Looks for this pod only
//! (by its ids): other pods run on the same containerd at the same time. Changes nothing but the pod's own cgroup,
//! which [`Footprint::wait_gone`] removes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::instance::{CgroupDriver, is_alive};
use crate::{Containerd, command, wait};

/// Directories, inside the instance's root file system, with entries named after containers.
const ENTRIES_BY_ID: [&str; 8] = [
    "run/containerd/fifo",
    "run/containerd/runc/k8s.io",
    "run/containerd/runc/default",
    // What podshim records of the sandboxes that it makes itself.
    "run/containerd/runc/.k8s.io.podshim",
    "run/containerd/runc/.default.podshim",
    "run/podshim",
    "run/netns",
    "run/containerd/s",
];

/// Directories below the instance's own, with entries named after containers.
const STATE_BY_ID: [&str; 7] = [
    "state/io.containerd.runtime.v2.task/k8s.io",
    "state/io.containerd.runtime.v2.task/default",
    "state/io.containerd.grpc.v1.cri/containers",
    "state/io.containerd.grpc.v1.cri/sandboxes",
    "root/io.containerd.runtime.v2.task/k8s.io",
    "root/io.containerd.runtime.v2.task/default",
    "root/io.containerd.grpc.v1.cri",
];

/// The ids and paths by which processes, files, mounts and cgroups of one pod are recognised.
#[derive(Clone, Debug, Default)]
pub struct Footprint {
    /// Ids of the sandbox and of every container that was ever created.
    ids: BTreeSet<String>,
    /// Sockets and network namespaces, which carry no id in their name: paths inside the instance's root.
    paths: BTreeSet<PathBuf>,
    /// The pod's cgroup, which the caller of CRI owns; its children are the containers'.
    cgroup: Option<String>,
}

impl Footprint {
    /// The footprint of containers that were created without CRI.
    #[must_use]
    pub fn of_containers(ids: &[&str]) -> Self {
        Self { ids: ids.iter().map(|&id| id.to_owned()).collect(), ..Self::default() }
    }

    pub(crate) fn of_pod(sandbox: &str, cgroup: &str) -> Self {
        Self { cgroup: Some(cgroup.to_owned()), ..Self::of_containers(&[sandbox]) }
    }

    pub(crate) fn add_container(&mut self, id: &str) {
        self.ids.insert(id.to_owned());
    }

    pub(crate) fn add_network_namespace(&mut self, path: &str) {
        // /var/run is a link to /run, absolute: it would lead out of the instance's root.
        self.paths.insert(PathBuf::from(path.replacen("/var/run/", "/run/", 1)));
    }

    /// Adds the shim's socket of a live task, as written in its bundle.
    ///
    /// # Errors
    /// As [`Containerd::shim_address`].
    pub fn add_shim_socket(&mut self, node: &Containerd, namespace: &str, id: &str) -> Result<()> {
        let address = node.shim_address(namespace, id)?;
        self.paths.insert(PathBuf::from(address.trim_start_matches("unix://")));
        Ok(())
    }

    /// Waits until nothing of it is left, and removes the pod's own (then empty) cgroup, as a kubelet does.
    ///
    /// # Errors
    /// With the list of what is still there after `within`. A zero `within` fails, as shims end a moment after the last
    /// RPC.
    pub async fn wait_gone(&self, node: &Containerd, within: Duration) -> Result<()> {
        let mut left = Vec::new();
        let waited = wait::until("nothing of the pod to be left", within, async || {
            left = self.find(node)?;
            Ok(left.is_empty().then_some(()))
        })
        .await;
        if waited.is_err() {
            bail!("left behind:\n  {}", left.join("\n  "));
        }
        if let Some(cgroup) = &self.cgroup {
            if node.cgroup_driver()? == CgroupDriver::Systemd {
                stop_slice(cgroup).await?;
            }
            remove_cgroup(cgroup)?;
        }
        Ok(())
    }

    /// Everything that is there now, one line each.
    ///
    /// # Errors
    /// If the instance is not up.
    pub fn find(&self, node: &Containerd) -> Result<Vec<String>> {
        let mut found = self.processes()?;
        found.extend(
            node.mounts()?.lines().filter(|line| self.names(line)).map(|line| format!("mount: {line}")),
        );
        let root = node.root()?;
        for path in &self.paths {
            let path = root.join(path.strip_prefix("/").unwrap_or(path));
            if path.symlink_metadata().is_ok() {
                found.push(format!("file: {}", path.display()));
            }
        }
        let inside = node.directory_inside()?;
        let in_root = ENTRIES_BY_ID.iter().map(|directory| root.join(directory));
        let in_directory = STATE_BY_ID.iter().map(|directory| inside.join(directory));
        for directory in in_root.chain(in_directory) {
            self.files_below(&directory, 0, &mut found);
        }
        if let Some(cgroup) = &self.cgroup {
            for directory in cgroup_directories(cgroup)? {
                found.extend(subdirectories(&directory).map(|child| format!("cgroup: {}", child.display())));
            }
        } else {
            for directory in cgroup_directories("/default")? {
                let children =
                    subdirectories(&directory).filter(|child| self.names(&child.to_string_lossy()));
                found.extend(children.map(|child| format!("cgroup: {}", child.display())));
            }
        }
        Ok(found)
    }

    /// Whether a text names one of the pod's ids, as a whole path component or word.
    fn names(&self, text: &str) -> bool {
        self.ids.iter().any(|id| {
            text.match_indices(id.as_str()).any(|(start, _)| {
                let is_part = |character: char| character.is_ascii_alphanumeric();
                !text[..start].ends_with(is_part) && !text[start + id.len()..].starts_with(is_part)
            })
        })
    }

    /// Shims and runtimes carry an id in their command line, containers in their cgroup's path.
    fn processes(&self) -> Result<Vec<String>> {
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc")? {
            let path = entry?.path();
            let Some(pid) = path.file_name().and_then(|name| name.to_str()?.parse().ok()) else { continue };
            // A process may end while this looks: then it is not left.
            let command = std::fs::read(path.join("cmdline")).unwrap_or_default();
            let command = String::from_utf8_lossy(&command).replace('\0', " ");
            let cgroups = std::fs::read_to_string(path.join("cgroup")).unwrap_or_default();
            let is_shim_or_runtime = ["shim", "runc", "crun"].iter().any(|name| command.contains(name));
            if (is_shim_or_runtime && self.names(&command) || self.names(&cgroups)) && is_alive(pid) {
                found.push(format!("process: {pid} {command}"));
            }
        }
        Ok(found)
    }

    /// Two levels are enough for all directories listed above.
    fn files_below(&self, directory: &Path, level: u8, found: &mut Vec<String>) {
        let Ok(entries) = std::fs::read_dir(directory) else { return };
        for path in entries.flatten().map(|entry| entry.path()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            // containerd renames a bundle before it removes it. If it is killed in between, it never looks at the
            // renamed one again.
            if name.starts_with('.') {
                continue;
            }
            if self.names(&name) {
                found.push(format!("file: {}", path.display()));
            } else if level == 0 && path.is_dir() {
                self.files_below(&path, level + 1, found);
            }
        }
    }
}

/// A slice stays when its last scope ends. If only its directory were removed, systemd would take it for still there.
async fn stop_slice(cgroup: &str) -> Result<()> {
    let slice = cgroup.rsplit('/').next().unwrap_or_default();
    let stopped = command::run(Path::new("systemctl"), ["stop", slice]).await?;
    stopped.success("systemctl stop").map(drop)
}

/// Removes a pod's own cgroup, as a kubelet does. It must be empty.
pub(crate) fn remove_cgroup(cgroup: &str) -> Result<()> {
    for directory in cgroup_directories(cgroup)? {
        std::fs::remove_dir(&directory).with_context(|| format!("cannot remove {}", directory.display()))?;
    }
    Ok(())
}

/// A cgroup's directories: one per controller (v1), or one (v2).
fn cgroup_directories(cgroup: &str) -> Result<Vec<PathBuf>> {
    let root = Path::new("/sys/fs/cgroup");
    let relative = cgroup.trim_start_matches('/');
    let mut hierarchies = vec![root.to_owned()];
    hierarchies.extend(subdirectories(root));
    Ok(hierarchies
        .into_iter()
        .map(|hierarchy| hierarchy.join(relative))
        .filter(|path| path.is_dir())
        .collect())
}

fn subdirectories(directory: &Path) -> impl Iterator<Item = PathBuf> + use<> {
    let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
    // Some of v1's controllers are links to others (cpu -> cpu,cpuacct).
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_found_as_a_whole_word_only() {
        let footprint = Footprint::of_containers(&["t1"]);
        assert!(footprint.names("/sys/fs/cgroup/cpu/default/t1"));
        assert!(footprint.names("shim -id t1 -address x"));
        assert!(footprint.names("state/t1-stdout"));
        assert!(!footprint.names("/default/t12") && !footprint.names("/default/last1"));
    }
}
