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
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::counts::{Count, CountedRole};
    use crate::places::place;

    const RESTARTS: Count<'_> = Count::Restarts(CountedRole::Sidecar);

    fn entry(namespace: &str, shim: &str, restarts: u64) -> Entry {
        let mut counts = Counts::default();
        counts.add_many(RESTARTS, restarts);
        Entry {
            pod_namespace: namespace.to_owned(),
            counts: Some(PodCounts { shim: shim.to_owned(), counts }),
            ..Entry::default()
        }
    }

    fn pod(root: &Path, name: &str) -> std::path::PathBuf {
        let directory = root.join("k8s.io").join(name);
        fs::create_dir_all(&directory).unwrap();
        directory
    }

    fn restarts(root: &Path, namespace: &str) -> Option<u64> {
        all(root).unwrap().get(namespace).map(|counts| counts.of(RESTARTS))
    }

    #[test]
    fn counts_survive_the_end_of_their_pod() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        assert_eq!(restarts(root, "shop"), None);
        let (web, job) = (pod(root, "web"), pod(root, "job"));
        entry("shop", "1-1", 3).write_to(&web).unwrap();
        entry("shop", "2-2", 4).write_to(&job).unwrap();
        assert_eq!(restarts(root, "shop"), Some(7));
        add_to_totals(root, &web).unwrap();
        assert!(!web.join(crate::entry::FILE).exists());
        assert_eq!(restarts(root, "shop"), Some(7));
        add_to_totals(root, &job).unwrap();
        // A `delete` that comes after it finds no entry.
        add_to_totals(root, &job).unwrap();
        assert_eq!(restarts(root, "shop"), Some(7));
        // The next pod of ctr may have the same directory.
        entry("shop", "3-3", 1).write_to(&web).unwrap();
        assert_eq!(restarts(root, "shop"), Some(8));
        add_to_totals(root, &web).unwrap();
        assert_eq!(restarts(root, "shop"), Some(8));
    }

    /// The process that adds a pod's counts is killed between the two files.
    #[test]
    fn counts_are_added_once() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let web = pod(root, "web");
        entry("shop", "1-1", 3).write_to(&web).unwrap();
        let mut totals = Totals::default();
        let counted = entry("shop", "1-1", 3);
        totals.add(&counted, counted.counts.as_ref().unwrap());
        totals.write(root).unwrap();
        assert_eq!(restarts(root, "shop"), Some(3));
        add_to_totals(root, &web).unwrap();
        assert_eq!(restarts(root, "shop"), Some(3));
    }

    #[test]
    fn a_namespace_has_counts_from_its_first_pod_on_and_they_are_bounded() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let old = Entry { pod_namespace: "old".to_owned(), ..Entry::default() };
        old.write_to(&pod(root, "of-an-older-release")).unwrap();
        assert_eq!(restarts(root, "old"), Some(0));
        for number in 0..NAMESPACES as u64 + 5 {
            let directory = pod(root, "test-run");
            entry(&format!("test-{number}"), &format!("{number}-1"), 1).write_to(&directory).unwrap();
            add_to_totals(root, &directory).unwrap();
        }
        assert_eq!(all(root).unwrap().len(), NAMESPACES + 1);
        assert_eq!(restarts(root, OTHERS), Some(5));
    }

    /// More namespaces have pods than there are places, and the pods end in another order than they started in.
    #[test]
    fn no_name_loses_counts_when_pods_of_too_many_namespaces_end() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let mut pods = Vec::new();
        for number in 0..NAMESPACES as u64 + 5 {
            // The order of the entries is not that of their starts.
            let namespace = format!("test-{}", number * 37 % 211);
            let directory = pod(root, &format!("pod-{namespace}"));
            let counted_as = Some(place(root, &namespace));
            let started =
                Entry { counted_as, id: namespace.clone(), ..entry(&namespace, &format!("{number}-1"), 1) };
            started.write_to(&directory).unwrap();
            pods.push(directory);
        }
        let mut before = all(root).unwrap();
        assert_eq!(before[OTHERS].of(RESTARTS), 5);
        for ended in pods.iter().rev() {
            add_to_totals(root, ended).unwrap();
            let after = all(root).unwrap();
            for (name, counts) in &before {
                let now = after.get(name).map(|counts| counts.of(RESTARTS));
                assert!(now >= Some(counts.of(RESTARTS)), "{name}: {now:?}");
            }
            before = after;
        }
        assert_eq!((before.len(), before[OTHERS].of(RESTARTS)), (NAMESPACES + 1, 5));
    }

    /// A pod without a namespace in Kubernetes has its name, the empty one, from its start on, like all others.
    #[test]
    fn the_counts_of_a_pod_without_a_namespace_keep_their_name() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let start = |namespace: &str, id: &str| {
            let counted_as = Some(place(root, namespace));
            let started = Entry { counted_as, id: id.to_owned(), ..entry(namespace, &format!("{id}-1"), 1) };
            let directory = pod(root, &format!("pod-{id}"));
            started.write_to(&directory).unwrap();
            directory
        };
        // The first to start, and the last in the order of the entries.
        let without = start("", "z");
        assert_eq!(restarts(root, ""), Some(1));
        for number in 0..NAMESPACES {
            start(&format!("test-{number}"), &format!("a-{number}"));
            assert_eq!(restarts(root, ""), Some(1), "after {number}");
        }
        assert_eq!(restarts(root, OTHERS), Some(1));
        add_to_totals(root, &without).unwrap();
        assert_eq!((restarts(root, ""), restarts(root, OTHERS)), (Some(1), Some(1)));
    }

    #[test]
    fn a_purged_directory_is_not_recreated_and_a_held_lock_is_not_waited_for() {
        let root = tempfile::tempdir().unwrap();
        let web = pod(root.path(), "web");
        entry("shop", "1-1", 3).write_to(&web).unwrap();
        let held = lock(root.path()).unwrap();
        assert_eq!(add_to_totals(root.path(), &web).unwrap_err().kind(), io::ErrorKind::TimedOut);
        drop(held);
        let purged = root.path().join("purged");
        assert!(add(&purged, &Entry::default(), &PodCounts::default(), &web).is_err());
        assert!(!purged.exists());
    }

    /// Pods end while the exporter reads: what it sees never becomes less.
    #[test]
    fn sums_never_decrease_while_pods_end() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..300 {
                    let directory = pod(root, &format!("pod-{}", number % 7));
                    entry("shop", &format!("{number}-1"), 1).write_to(&directory).unwrap();
                    add_to_totals(root, &directory).unwrap();
                }
                is_over.store(true, Ordering::Relaxed);
            });
            let mut last = 0;
            while !is_over.load(Ordering::Relaxed) {
                let now = restarts(root, "shop").unwrap_or_default();
                assert!(now >= last, "{now} after {last}");
                last = now;
            }
        });
        assert_eq!(restarts(root, "shop"), Some(300));
    }
}
