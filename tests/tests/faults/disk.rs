//! A disk that is full under the bundles, or under podshim's own files: the error says so, nothing is left, and running
//! containers go on.

use anyhow::{Context, Result, ensure};
use e2e::Containerd;
use e2e::instance::signal;
use e2e::task::{Task, shell};

/// More room than a container's bundle needs, in pages.
const AMPLE: u32 = 40;

/// Mounts a small tmpfs with these options over a directory.
async fn mount(node: &Containerd, directory: &str, options: &str) -> Result<()> {
    shell(node, &format!("mkdir -p {directory} && mount -t tmpfs -o {options} full {directory}"))
        .await
        .map(drop)
}

/// Tries every free space from zero up to enough, so that each write of a create fails once.
#[tokio::test]
async fn a_full_disk_under_the_bundles_fails_a_create_and_leaves_nothing() -> Result<()> {
    let node = Containerd::start().await?;
    let directory = node.directory().join("state/io.containerd.runtime.v2.task/default");
    let directory = directory.display();
    mount(&node, &directory.to_string(), "size=1m").await?;
    let leave = async |pages: u32| {
        let script = format!(
            "cd {directory} && {{ dd if=/dev/zero of=.fill bs=4096 2>/dev/null || true; }} &&
             truncate -s -$((4096 * {pages})) .fill"
        );
        shell(&node, &script).await
    };
    let (mut failed, mut pages) = (0, 0);
    loop {
        leave(pages).await?;
        let task = Task::named(&node, "full");
        let output = task.attempt(&[], &["sleep", "600"]).await?;
        if output.exit_code == Some(0) {
            // A running container does not need the disk: its exit is published, and it can be removed.
            leave(0).await?;
            let output = task.task(&["kill", "-s", "KILL"]).await?;
            ensure!(output.exit_code == Some(0), "{output:?}");
            task.wait_status("STOPPED").await?;
            task.remove().await.with_context(|| format!("{pages} pages"))?;
            break;
        }
        failed += 1;
        // Without room for the reason in the runtime's log, the error has only the runtime's exit status.
        let expected =
            ["no space left", "No space left", "OCI runtime create failed: runc ended with exit status 1"];
        ensure!(expected.iter().any(|text| output.stderr.contains(text)), "{output:?}");
        let forgotten = ["shim-binary-path", "bootstrap.json"];
        if forgotten.iter().any(|file| output.stderr.contains(file)) {
            // containerd itself fails, and forgets the shim that it has just started. Such a shim ends after two
            // minutes (trap 15); here a signal ends it.
            signal(task.shim()?, libc::SIGTERM)?;
        }
        task.remove().await.with_context(|| format!("{pages} pages: {output:?}"))?;
        let left = shell(&node, &format!("ls -A {directory}")).await?;
        ensure!(left.trim() == ".fill", "{pages} pages: {left:?} after {output:?}");
        pages += 1;
        ensure!(pages < AMPLE, "no container with {pages} pages: {output:?}");
    }
    ensure!(failed > 3, "only {failed} failed");
    Ok(())
}

#[tokio::test]
async fn a_full_disk_under_the_shims_own_files_fails_its_start_and_leaves_nothing() -> Result<()> {
    let node = Containerd::start().await?;
    mount(&node, "/run/podshim", "nr_inodes=1").await?;
    let task = Task::named(&node, "full-run");
    let output = task.attempt(&[], &["sleep", "600"]).await?;
    ensure!(output.exit_code == Some(1) && output.stderr.contains("No space left"), "{output:?}");
    task.remove().await?;
    shell(&node, "umount /run/podshim").await?;
    let task = Task::run(&node, "full-run", &[], &["sleep", "600"]).await?;
    task.remove().await
}
