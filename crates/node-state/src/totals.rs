//! The counts of all pods that have ended since the node was booted, and the sum with those that live.
//!
//! Owns the file: in memory like the pods' entries, so no shim waits for a disk, and a reboot begins at zero, which Prometheus
//! takes for the restart of a counter. Takes each pod's counts once, whichever process is killed meanwhile.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use crate::counts::{Counts, PodCounts};
use crate::entry::Entry;
use crate::replace::replace;

/// The file's name below [`crate::paths::STATE_ROOT`].
pub const TOTALS: &str = "totals.json";
const LOCK: &str = "totals.lock";
const TEMPORARY: &str = ".totals.json";
/// How many namespaces have counts of their own. A cluster that makes a namespace for each test run must not fill the memory.
pub(crate) const NAMESPACES: usize = 200;
/// The name for all others; no namespace of Kubernetes can have it.
pub(crate) const OTHERS: &str = "(others)";
/// How long an ending shim waits for others that end at the same time: each has the lock for less than a millisecond.
const LOCK_TRIES: u32 = 200;
const LOCK_RETRY: Duration = Duration::from_millis(5);
/// How often a reader looks again if a pod has ended while it read.
const READ_TRIES: u32 = 20;

/// The counts of ended pods, by the name under which they are shown: that of Kubernetes' namespace, or of all others.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Totals {
    /// The shim whose counts were added last. If it still has an entry, the process that added them was killed.
    last: String,
    pub(crate) namespaces: BTreeMap<String, Counts>,
}

impl Totals {
    pub(crate) fn read(root: &Path) -> io::Result<Self> {
        match fs::read(root.join(TOTALS)) {
            // A file that cannot be understood counts as missing.
            Ok(text) => Ok(serde_json::from_slice(&text).unwrap_or_default()),
            // No pod has ended yet.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(error),
        }
    }

    fn write(&self, root: &Path) -> io::Result<()> {
        replace(&root.join(TOTALS), &root.join(TEMPORARY), &serde_json::to_vec(self)?)
    }

    /// Adds a shim's counts, unless they were added last.
    fn add(&mut self, entry: &Entry, pod: &PodCounts) {
        if self.last == pod.shim {
            return;
        }
        self.last.clone_from(&pod.shim);
        self.of_pod(entry).add_all(&pod.counts);
    }

    /// The counts to which a pod's are added. An entry of an older release names no place: its namespace gets the next one.
    fn of_pod(&mut self, entry: &Entry) -> &mut Counts {
        let name = match entry.counted_as.as_deref() {
            Some(name) => name,
            None if self.namespaces.contains_key(&entry.pod_namespace) => &entry.pod_namespace,
            None if self.namespaces.len() < NAMESPACES => &entry.pod_namespace,
            None => OTHERS,
        };
        self.namespaces.entry(name.to_owned()).or_default()
    }
}

/// Moves the counts of a pod that has ended from its entry to the totals, and removes the entry. `directory` is the pod's, two
/// below the root. Also without an entry, or if that fails, the entry is gone afterwards.
///
/// # Errors
/// The lock is not free in time, or the file cannot be written: these counts are lost.
pub fn add_to_totals(root: &Path, directory: &Path) -> io::Result<()> {
    let entry = Entry::read_from(directory);
    let counted = entry.as_ref().and_then(|entry| Some((entry, entry.counts.as_ref()?)));
    let added = counted.map_or(Ok(()), |(entry, counts)| add(root, entry, counts, directory));
    Entry::remove_from(directory);
    added
}

fn add(root: &Path, entry: &Entry, pod: &PodCounts, directory: &Path) -> io::Result<()> {
    let _lock = lock(root)?;
    let mut totals = Totals::read(root)?;
    totals.add(entry, pod);
    totals.write(root)?;
    // Under the lock: until the next pod is added, `last` keeps a reader from counting this one twice.
    Entry::remove_from(directory);
    Ok(())
}

pub(crate) fn lock(root: &Path) -> io::Result<Flock<File>> {
    // Does not recreate a directory that a purge of podshim has removed.
    let mut file = File::create(root.join(LOCK))?;
    for _ in 0..LOCK_TRIES {
        match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => return Ok(lock),
            Err((unlocked, _)) => file = unlocked,
        }
        sleep(LOCK_RETRY);
    }
    Err(io::Error::new(io::ErrorKind::TimedOut, format!("{} is still locked", root.join(LOCK).display())))
}

/// What was counted in each namespace since the node was booted, by pods that live and by those that have ended. A namespace
/// has counts, if only zeros, from its first pod on.
///
/// # Errors
/// The root is there and cannot be read.
pub fn all(root: &Path) -> io::Result<BTreeMap<String, Counts>> {
    let mut before = Totals::read(root)?;
    for _ in 1..READ_TRIES {
        let sum = sum(before.clone(), &Entry::list(root)?);
        let after = Totals::read(root)?;
        if after == before {
            return Ok(sum);
        }
        // A pod has ended meanwhile: its counts may be missing.
        before = after;
    }
    // Pods end all the time: what is missing are those of the last millisecond.
    Ok(sum(before, &Entry::list(root)?))
}

fn sum(totals: Totals, entries: &[Entry]) -> BTreeMap<String, Counts> {
    let mut sum = totals.clone();
    for entry in entries {
        let of_pod = sum.of_pod(entry);
        if let Some(pod) = entry.counts.as_ref().filter(|pod| pod.shim != totals.last) {
            of_pod.add_all(&pod.counts);
        }
    }
    sum.namespaces
}

#[cfg(test)]
mod tests;
