//! A node through which pods go, with podshim as its default runtime, and one with containerd's own shim, which shows
//! what containerd itself leaves when it is killed.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::{Containerd, Inventory, Runtime};

use crate::lanes::{Kills, Run};
use crate::pods;

/// How long the last traces of a pod may take to vanish: containerd collects its garbage after a while.
const CLEANUP: Duration = Duration::from_secs(60);

/// Of the pods, so many run with containerd's own shim.
const SHARE_OF_RUNC: usize = 5;

/// What containerd itself may leave when it is killed.
const OF_CONTAINERD: [&str; 4] = [
    // Of a container that was being created: its lease keeps the snapshot for a day.
    "io.containerd.snapshotter.v1.overlayfs/snapshots/ID",
    // containerd renames a bundle before it removes it, and never looks at a renamed one again.
    "io.containerd.runtime.v2.task/k8s.io/.ID",
    // Of a sandbox that was being made: containerd has its network before it stores the sandbox.
    "/addresses/podshim-test/",
    "/run/netns/cni-",
];

/// Runs pods, and returns what the node has more afterwards.
async fn leftovers(
    node: &Containerd,
    before: &Inventory,
    runtime: Runtime,
    kills: Kills,
    count: usize,
) -> Result<Vec<String>> {
    Run::all(node, runtime, kills, count).await?;
    collect_garbage(node).await?;
    let left = before.wait_regained(node, CLEANUP).await?;
    println!("{runtime:?}, kills {kills:?}: {} kinds of things are left {left:#?}", left.len());
    Ok(left)
}

/// On a busy machine containerd may put its next collection off for more than a minute. To delete a lease is to have one
/// at once.
async fn collect_garbage(node: &Containerd) -> Result<()> {
    let ctr = node.ctr();
    ctr.run(&["-n", "k8s.io", "leases", "create", "--id", "churn"]).await?;
    ctr.run(&["-n", "k8s.io", "leases", "delete", "--sync", "churn"]).await.map(drop)
}

/// A node, and what it has after some pods: containerd makes some files and directories once.
async fn node_with(runtime: Runtime) -> Result<(Containerd, Inventory)> {
    let node = Containerd::start_with_default(runtime).await?;
    Run::all(&node, runtime, Kills::None, 7).await?;
    collect_garbage(&node).await?;
    let before = Inventory::of(&node)?;
    Ok((node, before))
}

#[tokio::test]
async fn pods_come_and_go_and_nothing_stays() -> Result<()> {
    let (node, before) = node_with(Runtime::Podshim).await?;
    let left = leftovers(&node, &before, Runtime::Podshim, Kills::None, pods().div_ceil(2)).await?;
    ensure!(left.is_empty(), "left: {left:#?}");
    Ok(())
}

#[tokio::test]
async fn pods_come_and_go_while_containerd_is_killed_and_nothing_stays() -> Result<()> {
    let theirs = {
        let (node, before) = node_with(Runtime::Runc).await?;
        let count = pods().div_ceil(2 * SHARE_OF_RUNC).max(12);
        leftovers(&node, &before, Runtime::Runc, Kills::EveryFewPods, count).await?
    };
    let (node, before) = node_with(Runtime::Podshim).await?;
    let left = leftovers(&node, &before, Runtime::Podshim, Kills::EveryFewPods, pods().div_ceil(2)).await?;
    let is_theirs = |line: &str| OF_CONTAINERD.iter().any(|part| line.contains(part));
    let ours: Vec<_> = left.iter().filter(|line| !is_theirs(line)).collect();
    ensure!(ours.is_empty(), "left: {ours:#?}, and with containerd's own shim: {theirs:#?}");
    Ok(())
}
