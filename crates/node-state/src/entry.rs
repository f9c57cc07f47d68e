//! How a pod's shim is found: a directory for each pod under `/run/podshim`, with a small file that names the pod and its
//! shim's socket.
//!
//! Owns the file and its place. `start` writes it, the shim adds its counts, and the process that removes a shim's lock removes it. A reader must expect
//! that the shim is gone.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::counts::PodCounts;
use crate::replace::replace;
use control_api::text::printable;

/// The file's name in a pod's directory.
pub const FILE: &str = "pod.json";
const TEMPORARY: &str = ".pod.json";

/// A pod and where its shim listens. Fields are only ever added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Entry {
    /// The version of the control API that its writer has.
    pub version: u32,
    /// The group the shim serves: the sandbox's id under CRI.
    pub id: String,
    /// containerd's namespace.
    pub namespace: String,
    /// The path of the shim's socket.
    pub socket: PathBuf,
    /// The pod's name in Kubernetes; empty without CRI.
    pub pod_name: String,
    /// The pod's namespace in Kubernetes; empty without CRI.
    pub pod_namespace: String,
    /// When a drain ends the pod (N11): lower ones first.
    pub drain_priority: i32,
    /// Under which name that is counted (`crate::places`): empty for a pod without a namespace in Kubernetes, `None` in the entry
    /// of a release without it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counted_as: Option<String>,
    /// What its shim has counted, as of its last change.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counts: Option<PodCounts>,
}

impl Entry {
    /// Writes the entry into a pod's directory, whole or not at all.
    ///
    /// # Errors
    /// The system's answer; no part of the entry is left then.
    pub fn write_to(&self, directory: &Path) -> io::Result<()> {
        replace(&directory.join(FILE), &directory.join(TEMPORARY), &serde_json::to_vec(self)?)
    }

    /// Removes the entry of a pod, if there is one.
    pub fn remove_from(directory: &Path) {
        let _ = fs::remove_file(directory.join(FILE));
        // Of a shim that was killed while it wrote.
        let _ = fs::remove_file(directory.join(TEMPORARY));
    }

    /// The entry of a pod, if there is one that can be read.
    pub fn read_from(directory: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(directory.join(FILE)).ok()?).ok()
    }

    /// The entry in the content of a [`FILE`]. A pod's author writes the names: they become printable, like all texts that
    /// come from a pod.
    pub fn parse(content: &[u8]) -> Option<Self> {
        let mut entry: Self = serde_json::from_slice(content).ok()?;
        let names =
            [&mut entry.id, &mut entry.namespace, &mut entry.pod_name, &mut entry.pod_namespace].into_iter();
        for name in names.chain(&mut entry.counted_as) {
            *name = printable(name);
        }
        Some(entry)
    }

    /// The entries under a root, in the order of their namespaces and ids. Skips what cannot be read: pods come and go
    /// meanwhile.
    ///
    /// # Errors
    /// The root is there and cannot be read.
    pub fn list(root: &Path) -> io::Result<Vec<Self>> {
        Ok(Self::list_with_directories(root)?.into_iter().map(|(_, entry)| entry).collect())
    }

    /// The same, each with its pod's directory.
    ///
    /// # Errors
    /// The root is there and cannot be read.
    pub fn list_with_directories(root: &Path) -> io::Result<Vec<(PathBuf, Self)>> {
        let namespaces = match fs::read_dir(root) {
            Ok(namespaces) => namespaces,
            // No pod has run since the node was booted.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let pods = namespaces.flatten().filter_map(|namespace| fs::read_dir(namespace.path()).ok());
        let directories = pods.flat_map(|pods| pods.flatten()).map(|pod| pod.path());
        let read = |path: PathBuf| {
            let entry = Self::parse(&fs::read(path.join(FILE)).ok()?)?;
            Some((path, entry))
        };
        let mut entries: Vec<(PathBuf, Self)> = directories.filter_map(read).collect();
        entries.sort_by(|(_, a), (_, b)| (&a.namespace, &a.id).cmp(&(&b.namespace, &b.id)));
        Ok(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A listing survives a stale entry, a broken one, and the fields of a newer release.
    #[test]
    fn a_listing_survives_whatever_is_there() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(Entry::list(&root.path().join("none")).unwrap(), []);
        let pod = |namespace: &str, id: &str| {
            let directory = root.path().join(namespace).join(format!("socket-of-{id}"));
            fs::create_dir_all(&directory).unwrap();
            directory
        };
        let entry = |namespace: &str, id: &str| Entry {
            namespace: namespace.to_owned(),
            id: id.to_owned(),
            ..Entry::default()
        };
        for (namespace, id) in [("k8s.io", "b"), ("k8s.io", "a"), ("default", "c")] {
            entry(namespace, id).write_to(&pod(namespace, id)).unwrap();
        }
        fs::write(pod("k8s.io", "broken").join(FILE), "{\"id\":").unwrap();
        fs::create_dir(pod("k8s.io", "directory").join(FILE)).unwrap();
        pod("k8s.io", "starting");
        fs::write(root.path().join("draining"), "").unwrap();
        fs::write(pod("k8s.io", "newer").join(FILE), r#"{"version":2,"id":"d","colour":"red"}"#).unwrap();
        let listed = Entry::list(root.path()).unwrap();
        let ids: Vec<_> = listed.iter().map(|entry| entry.id.as_str()).collect();
        assert_eq!(ids, ["d", "c", "a", "b"]);
        Entry::remove_from(&pod("default", "c"));
        assert_eq!(Entry::list(root.path()).unwrap().len(), 3);
    }

    /// A release without the name, one that reads a text, and this one read each other's entries.
    #[test]
    fn a_missing_name_of_the_counts_is_not_an_empty_one() {
        #[derive(Deserialize)]
        struct Older {
            #[serde(default)]
            counted_as: String,
        }
        for (counted_as, text) in [
            (None, None),
            (Some(""), Some(r#""counted_as":"""#)),
            (Some("shop"), Some(r#""counted_as":"shop""#)),
        ] {
            let entry = Entry { counted_as: counted_as.map(str::to_owned), ..Entry::default() };
            let written = serde_json::to_string(&entry).unwrap();
            assert_eq!(text.map(|text| written.contains(text)), text.map(|_| true), "{written}");
            assert_eq!(written.contains("counted_as"), text.is_some(), "{written}");
            assert_eq!(Entry::parse(written.as_bytes()), Some(entry));
            let older: Older = serde_json::from_str(&written).unwrap();
            assert_eq!(older.counted_as, counted_as.unwrap_or_default());
        }
    }
}
