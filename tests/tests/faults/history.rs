//! A history that cannot be written (issue 19): no stop takes longer, no caller gets an error, and nothing is left on
//! the node. Neither at the pod's orderly end, nor in the `delete` after its shim was killed.

use std::fs::{DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use e2e::Event::{Exiting, Started, Term};
use e2e::durations::{AMPLE, SOON, at_most, seconds};
use e2e::fuse::{ENDLESS, Fuse};
use e2e::instance::signal;
use e2e::task::shell;
use e2e::{Containerd, Pod, Program, Runtime, wait};
use tokio::time::Instant;

const HISTORY: &str = "/var/lib/podshim/history";
/// How many processes may write records at a time.
const WRITERS: usize = 8;
/// The stop of a pod that ends at once, on a busy machine; a writer waits this long for its turn.
const SHORT: std::time::Duration = seconds(5);

/// Whether a shim ends its pod, or `delete` does, because the shim was killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Orderly,
    Killed,
}

/// Runs a pod, ends it and removes it, and returns the names of its records. The exits, the order of the stop and its
/// time are checked.
async fn live(node: &Containerd, end: End) -> Result<Vec<String>> {
    let mut pod = Pod::new("past-fault")
        .annotate("plan", "proxy=sidecar, app=main")
        .container(Program::new("proxy"))
        .container(Program::new("app").term_exit_code(4))
        .run(node, Runtime::Podshim)
        .await?;
    pod.start_all(&["proxy", "app"]).await?;
    pod.wait_for("app", Started, 1, SOON).await?;
    let (name, began) = (pod.name().to_owned(), Instant::now());
    if end == End::Killed {
        signal(pod.shim_pid()?, libc::SIGKILL)?;
        pod.wait_exited("app", SOON).await?;
        pod.wait_exited("proxy", SOON).await?;
    } else {
        pod.stop_all_at_once(AMPLE).await?;
        let status = pod.status("app").await?;
        ensure!(status.exit_code == 4, "{status:?}");
        pod.timeline()?.in_order(&[("app", Term), ("app", Exiting), ("proxy", Term), ("proxy", Exiting)])?;
    }
    let took = began.elapsed();
    ensure!(at_most(took, SHORT), "{end:?}: the stop took {took:?}");
    // Checks that no process of it is left: neither the shim nor `delete` waits for the writer.
    pod.remove().await?;
    records_of(node, &name)
}

fn root(node: &Containerd) -> Result<PathBuf> {
    Ok(node.root()?.join(HISTORY.trim_start_matches('/')))
}

fn records_of(node: &Containerd, pod: &str) -> Result<Vec<String>> {
    let files = std::fs::read_dir(root(node)?.join("e2e")).into_iter().flatten().flatten();
    let names = files.map(|file| file.file_name().to_string_lossy().into_owned());
    Ok(names.filter(|name| name.contains(pod)).collect())
}

#[tokio::test]
async fn a_history_that_cannot_be_written_delays_and_fails_nothing() -> Result<()> {
    let node = Containerd::start().await?;
    for (fault, undo) in [
        // A file in place of the directory.
        ("echo mine >H", "grep -q mine H && rm H"),
        // No file more, no byte more, no change.
        ("mkdir -p H && mount -t tmpfs -o nr_inodes=2 full H", "umount H"),
        (
            "mkdir -p H && mount -t tmpfs -o size=4k full H && dd if=/dev/zero of=H/.fill bs=4096 count=1 2>/dev/null",
            "umount H",
        ),
        ("mkdir -p H && mount -t tmpfs -o ro full H", "umount H"),
        // The lock of the clean-up cannot be opened.
        ("mkdir -p H/.lock", "rm -r H"),
    ] {
        shell(&node, &format!("rm -rf H; {fault}").replace('H', HISTORY)).await?;
        for end in [End::Orderly, End::Killed] {
            let records = live(&node, end).await.with_context(|| format!("{end:?} after {fault}"))?;
            ensure!(records.len() == usize::from(fault.contains("lock")), "{fault}: {records:?}");
        }
        shell(&node, &undo.replace('H', HISTORY)).await?;
    }
    for end in [End::Orderly, End::Killed] {
        ensure!(live(&node, end).await?.len() == 1, "{end:?}: the history is as before");
    }
    Ok(())
}

#[tokio::test]
async fn locks_of_the_history_that_are_held_delay_and_fail_nothing() -> Result<()> {
    let node = Containerd::start().await?;
    // Another process cleans up, and does not end.
    DirBuilder::new().mode(0o700).create(root(&node)?)?;
    let lock = File::create(root(&node)?.join(".lock"))?;
    lock.lock()?;
    for end in [End::Orderly, End::Killed] {
        ensure!(live(&node, end).await?.len() == 1, "{end:?}: the record does not need that lock");
    }
    // As many processes write as may.
    let run = node.root()?.join("run/podshim");
    let slots = (0..WRITERS).map(|number| {
        let slot = File::create(run.join(format!("history.{number}")))?;
        slot.lock()?;
        Ok(slot)
    });
    let slots: Vec<File> = slots.collect::<Result<_>>()?;
    for end in [End::Orderly, End::Killed] {
        let records = live(&node, end).await?;
        ensure!(records.is_empty(), "{end:?}: {records:?}");
    }
    drop(slots);
    ensure!(live(&node, End::Orderly).await?.len() == 1, "the slots are free again");
    Ok(())
}

/// A disk that answers no more: the processes that write wait for it, and no other process does.
#[tokio::test]
async fn a_history_that_hangs_delays_and_fails_nothing() -> Result<()> {
    let node = Containerd::start().await?;
    let disk = Fuse::mount(&node, "history").await?;
    shell(&node, &format!("rm -rf {HISTORY}; ln -s {}/{ENDLESS} {HISTORY}", disk.path().display())).await?;
    disk.falls_silent();
    let lives = async {
        for (end, writers) in [(End::Orderly, 1), (End::Killed, 2)] {
            live(&node, end).await.with_context(|| format!("{end:?}"))?;
            wait::until("a writer to wait for the disk", SOON, async || {
                Ok((writers_of(&node)? == writers).then_some(()))
            })
            .await?;
        }
        Ok(())
    };
    let lived = lives.await;
    // Before an error is returned: a process that waits for the disk cannot be killed.
    disk.end().await?;
    lived
}

/// How many processes write records in this instance.
fn writers_of(node: &Containerd) -> Result<usize> {
    let namespace = |process: &Path| std::fs::read_link(process.join("ns/mnt")).ok();
    let own = namespace(node.root()?.parent().context("no process")?);
    let processes = std::fs::read_dir("/proc")?.flatten().map(|entry| entry.path());
    let writes = |process: &PathBuf| {
        let command = std::fs::read(process.join("cmdline")).unwrap_or_default();
        command.starts_with(b"podshim-history") && namespace(process) == own
    };
    Ok(processes.filter(writes).count())
}
