//! Everything that an instance has on the node, as a set that can be compared with the one of another moment: for tests
//! that make many pods and then look for what none of them may leave. [`crate::Footprint`] looks for one pod's instead.
//! Changes nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::{Containerd, wait};

/// How often the node is read while a test waits: each time reads all processes and files.
const INTERVAL: Duration = Duration::from_secs(1);

/// Directories below the instance's own in which tasks, containers, pods and addresses have entries. What is stored of
/// images is not among them.
const STATE: [&str; 7] = [
    "state",
    "addresses",
    "kubelet/pods",
    "root/io.containerd.runtime.v2.task",
    "root/io.containerd.grpc.v1.cri",
    "root/io.containerd.sandbox.controller.v1.shim",
    "root/io.containerd.snapshotter.v1.overlayfs/snapshots",
];

/// Parts of entries that change and are of no pod: directories with their contents.
const OTHERS: [&str; 4] = [
    // Of the machine's systemd, which has the units of all instances: the instance's own are looked up.
    "/run/systemd/",
    // Of the tests of user namespaces (hack/containerd-up's overlay).
    "/run/etc",
    // Locks of those who write records of removed pods: as many as may write at once, kept.
    "/run/podshim/history.ID",
    // The files of one snapshot are its image's.
    "/snapshots/ID/",
];

/// What there is, and how often. Ids and numbers are replaced by a word, so that entries of different pods compare equal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inventory {
    entries: BTreeMap<String, usize>,
}

impl Inventory {
    /// What the instance has now.
    ///
    /// # Errors
    /// If the instance is not up.
    pub fn of(node: &Containerd) -> Result<Self> {
        let mut found = Self::default();
        for pid in node.processes()? {
            let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let command = String::from_utf8_lossy(&command).replace('\0', " ");
            found.add("process", command.split(" -").next().unwrap_or_default());
        }
        // Not the kubelet's, which gets none from podshim: of two kubelets 1.20, one may have /dev/kmsg twice, and each
        // leaves it to Go's garbage collector to close memory.numa_stat, minutes later.
        if let Ok(pid) = node.pid("containerd.pid") {
            // A daemon that was killed has none.
            for entry in std::fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten() {
                let target = std::fs::read_link(entry.path()).unwrap_or_default();
                found.add("descriptor of containerd", &target.to_string_lossy());
            }
        }
        for line in node.mounts()?.lines() {
            let (point, kind) = mount(line).with_context(|| format!("not a mount: {line}"))?;
            found.add("mount", &format!("{point} ({kind})"));
        }
        for hierarchy in hierarchies() {
            let root = hierarchy.join(node.cgroup_of_pods()?.trim_start_matches('/'));
            found.add_below("cgroup", &root, &hierarchy);
        }
        let root = node.root()?;
        found.add_scopes(&root.join("run/systemd/transient"), &node.slice());
        found.add_below("file", &root.join("run"), &root);
        let directory = node.directory_inside()?;
        for part in STATE {
            found.add_below("file", &directory.join(part), &root);
        }
        // Number, protocol and type of a socket, its inode, its path if it has one.
        let sockets = std::fs::read_to_string(format!("/proc/{}/net/unix", node.pid("holder.pid")?))?;
        for path in sockets.lines().skip(1).filter_map(|line| line.split_whitespace().nth(7)) {
            found.add("socket", path);
        }
        Ok(found)
    }

    /// What is here and not, or not as often, in `before`: one line each.
    #[must_use]
    pub fn more_than(&self, before: &Self) -> Vec<String> {
        let more = self.entries.iter().filter_map(|(entry, &now)| {
            let then = before.entries.get(entry).copied().unwrap_or_default();
            (now > then).then(|| if now == 1 { entry.clone() } else { format!("{entry}: {then}, now {now}") })
        });
        more.collect()
    }

    /// Waits until the instance has no more than this, and returns what it still has more then.
    ///
    /// # Errors
    /// If the instance is not up.
    pub async fn wait_regained(&self, node: &Containerd, within: Duration) -> Result<Vec<String>> {
        let mut more = Vec::new();
        let waited =
            wait::until_seen_every(INTERVAL, "the node to have no more than before", within, async || {
                more = Self::of(node)?.more_than(self);
                Ok(more.is_empty().then_some(()))
            });
        match waited.await {
            // What is left is the result.
            Err(_) if !more.is_empty() => Ok(more),
            waited => waited.map(|()| more),
        }
    }

    fn add(&mut self, kind: &str, name: &str) {
        let entry = format!("{kind}: {}", without_ids(name));
        if !OTHERS.iter().any(|other| entry.contains(other)) {
            *self.entries.entry(entry).or_default() += 1;
        }
    }

    /// The scopes that systemd knows below a slice: one that has failed has no cgroup any more.
    fn add_scopes(&mut self, units: &Path, slice: &str) {
        for unit in std::fs::read_dir(units).into_iter().flatten().flatten() {
            // It may have ended meanwhile.
            let text = std::fs::read_to_string(unit.path()).unwrap_or_default();
            if [".", "-"].into_iter().any(|next| text.contains(&format!("Slice={slice}{next}"))) {
                self.add("unit", &unit.file_name().to_string_lossy());
            }
        }
    }

    /// Directories and what is in them; of cgroups only the directories. Names are those below `root`.
    fn add_below(&mut self, kind: &str, directory: &Path, root: &Path) {
        for entry in std::fs::read_dir(directory).into_iter().flatten().flatten() {
            let (path, is_directory) = (entry.path(), entry.file_type().is_ok_and(|kind| kind.is_dir()));
            let name = Path::new("/").join(path.strip_prefix(root).unwrap_or(&path));
            let name = name.to_string_lossy();
            // A pod's slice is its kubelet's, and systemd makes it again for the scope of a create that was cut off.
            if kind != "cgroup" || (is_directory && !name.ends_with(".slice")) {
                self.add(kind, &name);
            }
            // The root file system of a live container is another file system.
            if is_directory && !name.ends_with("/rootfs") && !without_ids(&name).ends_with("/snapshots/ID") {
                self.add_below(kind, &path, root);
            }
        }
    }
}

/// The point and the type of a line of mountinfo.
fn mount(line: &str) -> Option<(&str, &str)> {
    let (before, after) = line.split_once(" - ")?;
    Some((before.split(' ').nth(4)?, after.split(' ').next()?))
}

/// The roots of all cgroup hierarchies: one per controller (v1), or one (v2).
fn hierarchies() -> Vec<PathBuf> {
    let root = PathBuf::from("/sys/fs/cgroup");
    if root.join("cgroup.controllers").exists() {
        return vec![root];
    }
    let entries = std::fs::read_dir(&root).into_iter().flatten().flatten();
    // Some of v1's controllers are links to others (cpu -> cpu,cpuacct).
    let entries = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
    entries.map(|entry| entry.path()).collect()
}

/// Replaces what is different in each pod: numbers, ids in hexadecimal, UUIDs. All get one word: whether an id has letters
/// is chance.
fn without_ids(text: &str) -> String {
    // The kernel's choice for a socket that is bound without an address: the kubelet's to the journal.
    if text.strip_prefix('@').is_some_and(|name| name.len() == 5 && is_hexadecimal(name)) {
        return "@ID".into();
    }
    let mut replaced = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = rest.find(|character: char| !character.is_ascii_alphanumeric()).unwrap_or(rest.len());
        if length == 0 {
            replaced.push(first);
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let (word, after) = rest.split_at(length);
        let is_number = word.bytes().all(|byte| byte.is_ascii_digit());
        let is_id = word.len() >= 4 && is_hexadecimal(word) && word.bytes().any(|byte| byte.is_ascii_digit());
        replaced.push_str(if is_number || is_id { "ID" } else { word });
        rest = after;
    }
    replaced
}

fn is_hexadecimal(word: &str) -> bool {
    word.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_of_two_pods_compare_equal_without_their_ids() {
        assert_eq!(without_ids("/run/netns/cni-1f0c2a3b-44dd-9e01"), "/run/netns/cni-ID-ID-ID");
        assert_eq!(without_ids("socket:[12345]"), "socket:[ID]");
        assert_eq!(without_ids("run/podshim/k8s.io/face"), "run/podshim/k8s.io/face");
        // Digits alone, letters alone, both.
        for name in ["@01234", "@abcde", "@0a1b2"] {
            assert_eq!(without_ids(name), "@ID");
        }
    }

    #[test]
    fn what_is_there_more_often_is_named() {
        let (mut before, mut after) = (Inventory::default(), Inventory::default());
        before.add("socket", "/run/a");
        for name in ["/run/a", "/run/a", "/run/b"] {
            after.add("socket", name);
        }
        assert_eq!(after.more_than(&before), ["socket: /run/a: 1, now 2", "socket: /run/b"]);
        assert!(before.more_than(&after).is_empty());
    }

    #[test]
    fn a_mount_is_its_point_and_its_type() {
        let line = "36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw,errors=continue";
        assert_eq!(mount(line), Some(("/mnt2", "ext3")));
    }
}
