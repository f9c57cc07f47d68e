//! Containers that another process than the shim has frozen (K17): `runc pause`, a write to the freezer's file, a group inside
//! of the container's own as Docker in Docker makes it.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use e2e::freezer::Freezer;
use e2e::pod::faults::is_of_a_shim;
use e2e::{Containerd, Pod, Program, RunningPod, Task, wait};
use tokio::time::Instant;

use crate::support::{SOON, at_most, run_started, seconds};

async fn pair(node: &Containerd) -> Result<RunningPod<'_>> {
    let pod = Pod::new("frozen")
        .annotate("plan", "s1=sidecar, app=main")
        .container(Program::new("s1"))
        .container(Program::new("app"));
    run_started(pod, node, &["s1", "app"]).await
}

/// Freezes a process of the container in a group of its own, inside of the container's, which runs on.
async fn freeze_a_child(pod: &RunningPod<'_>, name: &str) -> Result<()> {
    let own = Freezer::of(pod.pid(name).await?)?;
    pod.exec(name, &["sh", "-c", "sleep 1000 </dev/null >/dev/null 2>&1 &"]).await?;
    let init = pod.pid(name).await?;
    let child =
        wait::until("the child", SOON, async || Ok(own.members()?.into_iter().find(|pid| *pid != init)));
    let inner = own.inner("inner")?;
    inner.take(child.await?)?;
    inner.freeze().await
}

#[tokio::test]
async fn d1_k17_what_another_process_froze_is_stopped() -> Result<()> {
    let node = Containerd::connect().await?;
    let pod = pair(&node).await?;
    for name in ["app", "s1"] {
        Freezer::of(pod.pid(name).await?)?.freeze().await?;
    }
    let begin = Instant::now();
    tokio::time::timeout(seconds(20), pod.stop("app", seconds(1))).await.context("StopContainer hangs")??;
    ensure!(at_most(begin.elapsed(), seconds(2)), "it took {:?}", begin.elapsed());
    tokio::time::timeout(seconds(20), pod.stop_sandbox()).await.context("StopPodSandbox hangs")??;
    pod.remove().await
}

/// In a pid namespace of its own process 1 is gone only when all others are, and the kernel cannot kill a frozen one on v1.
#[tokio::test]
async fn d1_k17_a_frozen_group_inside_of_a_container_is_thawed_too() -> Result<()> {
    let node = Containerd::connect().await?;
    let pod = pair(&node).await?;
    freeze_a_child(&pod, "app").await?;
    let begin = Instant::now();
    tokio::time::timeout(seconds(20), pod.stop("app", seconds(1))).await.context("StopContainer hangs")??;
    ensure!(at_most(begin.elapsed(), seconds(2)), "it took {:?}", begin.elapsed());
    pod.remove().await
}

/// S1: as with the runc shim, for one container with no plan.
#[tokio::test]
async fn d1_k17_a_kill_by_ctr_ends_a_frozen_task() -> Result<()> {
    let node = Containerd::connect().await?;
    let task = Task::run(&node, "frozen", &[], &["sleep", "1000"]).await?;
    let pid = task.wait_status("RUNNING").await?;
    Freezer::of(pid)?.freeze().await?;
    task.task(&["kill", "-s", "KILL"]).await?;
    task.wait_status("STOPPED").await?;
    task.remove().await
}

/// N3, N10: `delete` of a shim that is dead leaves nothing that is frozen.
#[tokio::test]
async fn d1_n10_after_a_killed_shim_no_frozen_process_is_left() -> Result<()> {
    let node = Containerd::connect().await?;
    let pod = pair(&node).await?;
    freeze_a_child(&pod, "app").await?;
    freeze_a_child(&pod, "s1").await?;
    Freezer::of(pod.pid("s1").await?)?.freeze().await?;
    e2e::instance::signal(pod.shim_pid()?, libc::SIGKILL)?;
    pod.wait_rid_of("thing", Duration::from_secs(5), is_of_a_shim).await?;
    // containerd 1.7 removes no container of which it has not read that exit.
    for name in ["app", "s1"] {
        pod.wait_exited(name, SOON).await?;
    }
    pod.remove().await
}
