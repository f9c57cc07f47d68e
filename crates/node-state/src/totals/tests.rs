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
