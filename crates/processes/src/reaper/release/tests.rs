//! The release on a thread, with real processes.

use std::time::Duration;

use test_support::{run, until, within};

use super::*;
use crate::process::SignalNumber;
use crate::reaper::Reaper;
use crate::reaper::tests::{orphan, shell};

/// A process that looks at as many names below /proc as it may have files, and then does `end`.
async fn reads_many_names(reaper: &Reaper, end: &str) -> Pid {
    let script = r#"
import os, resource, time
soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
null = os.open("/dev/null", os.O_RDONLY)
for number in range(min(hard - 20, 30000)): os.dup(null)
numbers = os.listdir("/proc/self/fd")
for directory in ("/proc/self", f"/proc/self/task/{os.getpid()}"):
    for part in ("fd", "fdinfo"):
        for number in numbers:
            try: os.lstat(f"{directory}/{part}/{number}")
            except OSError: pass
"#;
    orphan(reaper, &format!("exec python3 -c '{script}{end}'")).await
}

/// H3: the kernel keeps a name for each file below /proc/PID that a container has looked at, and drops them when the process is released.
/// On 981875e7 the thread that answers containerd did that.
#[test]
fn h3_the_release_of_a_containers_process_does_not_take_this_threads_time() {
    run(async {
        let reaper = Reaper::start().unwrap();
        let subscription = reaper.subscribe();
        let pid = reads_many_names(&reaper, "os.kill(os.getpid(), 9)").await;
        let (_, exit) = reaper.adopt(&subscription, pid).unwrap();
        let mut other = reaper.spawn(&mut shell("exec sleep 1000")).unwrap();
        assert_eq!(within(exit).await.code, 137);
        // Another exit is seen while it is released.
        other.process.signal(SignalNumber::KILL).unwrap();
        let mut longest = Duration::ZERO;
        let begun = tokio::time::Instant::now();
        let mut seen = None;
        while reaper.table.borrow().recorded.contains(&pid) {
            let round = tokio::time::Instant::now();
            tokio::time::sleep(Duration::from_millis(1)).await;
            longest = longest.max(round.elapsed());
            if seen.is_none() && tokio::time::timeout(Duration::ZERO, &mut other.exit).await.is_ok() {
                seen = Some(begun.elapsed());
            }
        }
        let released = begun.elapsed();
        println!("released in {released:?}: away for {longest:?}, another exit after {seen:?}");
        assert!(released > Duration::from_millis(40), "{released:?} shows nothing");
        assert!(longest < released / 2, "away for {longest:?} of {released:?}");
        assert!(seen.is_some_and(|seen| seen < released / 2), "{seen:?} of {released:?}");
    });
}

/// H3: of two exits behind one SIGCHLD the second is not seen only when the first process has been released.
#[test]
fn h3_the_second_exit_behind_one_signal_is_seen_at_once() {
    run(async {
        let reaper = Reaper::start().unwrap();
        let subscription = reaper.subscribe();
        let directory = tempfile::tempdir().unwrap();
        let ready = directory.path().join("ready");
        let end = format!("open(\"{}\", \"w\"); time.sleep(1000)", ready.display());
        let pid = reads_many_names(&reaper, &end).await;
        let (process, exit) = reaper.adopt(&subscription, pid).unwrap();
        until(|| ready.exists()).await;
        // Later than the first among the children of this process.
        let later = orphan(&reaper, "exec sleep 1000").await;
        let (other, mut seen) = reaper.adopt(&subscription, later).unwrap();
        for process in [&process, &other] {
            process.signal(SignalNumber::KILL).unwrap();
            // Without the reaper.
            while process.is_running() {
                std::thread::yield_now();
            }
        }
        within(exit).await;
        within(&mut seen).await;
        assert!(reaper.table.borrow().recorded.contains(&pid), "seen after the release of the first");
    });
}

/// The thread that releases, if it is there: its descriptors.
fn descriptors_of_release() -> Option<Vec<String>> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    let mut tasks = tasks.map(|task| task.path());
    let task = tasks
        .find(|task| std::fs::read_to_string(task.join("comm")).is_ok_and(|name| name == "release\n"))?;
    let links = std::fs::read_dir(task.join("fd")).ok()?.flatten();
    Some(links.filter_map(|link| Some(std::fs::read_link(link.path()).ok()?.display().to_string())).collect())
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

/// H1, H3: a killed shim's files are closed when no thread has the same table any more. That of a release works in the kernel for seconds.
#[test]
fn h3_the_thread_that_releases_keeps_no_connection_and_no_lock_of_the_shim() {
    run(async {
        let lock = tempfile::NamedTempFile::new().unwrap();
        let reaper = Reaper::start().unwrap();
        orphan(&reaper, "exit 0").await;
        let lock = lock.path().display().to_string();
        // The bell, and the standard three, which are the null device in the shim.
        let has_few = |all: &Vec<String>| (1..=4).contains(&all.len()) && !all.contains(&lock);
        until(|| descriptors_of_release().as_ref().is_some_and(has_few)).await;
    });
}

/// The budget of threads: one more while processes of containers end and for a moment after that, however many end.
#[test]
fn the_thread_that_releases_is_one_and_ends() {
    run(async {
        let reaper = Reaper::start().unwrap();
        for _ in 0..3 {
            let before = threads();
            let mut most = 0;
            for _ in 0..5 {
                orphan(&reaper, "exit 0").await;
                most = most.max(threads());
            }
            assert!(most <= before + 1, "{most} threads, {before} before");
            until(|| threads() == before).await;
        }
    });
}
