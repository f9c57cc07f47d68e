//! What a container's process 1 may do to its parent, which is the shim.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::cri::ContainerState;
use e2e::pod::PidNamespace;
use e2e::processor_time::{processor_time, time_inside};
use e2e::{Containerd, Pod, Program, Runtime, wait};

use crate::support::{EndsWithTest, PROMPT, ensure_serving};

/// A process that asks its parent to trace it (PTRACE_TRACEME) stops at each signal, and waitid(2) reports that to its parent as it does
/// an exit. Podshim took it for one, and the task was stopped for containerd and lived on.
#[tokio::test]
async fn a_process_that_asks_to_be_traced_has_not_ended() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("traced")
        .container(Program::new("traced").begins_with_script("echo begins; exec adversary traced"))
        .container(Program::new("other"))
        .run(&node, Runtime::Podshim)
        .await?;
    let _ends = EndsWithTest::of(&pod)?;
    pod.start_all(&["other", "traced"]).await?;
    pod.wait_for_output("traced", "begins").await?;
    for _ in 0..5 {
        // What ends makes the shim look at its children.
        ensure_serving(&pod, "other").await?;
        wait::quiet_time(Duration::from_millis(200)).await;
        let status = pod.status("traced").await?;
        ensure!(status.state() == ContainerState::ContainerRunning, "{status:?}");
    }
    wait::at_most(PROMPT, "a stop", pod.stop("traced", Duration::from_secs(1))).await?;
    let status = pod.status("traced").await?;
    ensure!(status.exit_code == 137, "{status:?}");
    wait::at_most(PROMPT, "the end of the pod", pod.remove()).await
}

/// How long a storm goes on, and what part of it the shim's own process may take of a processor.
const STORM: Duration = Duration::from_secs(4);
const SHARE: u32 = 4;

/// A pod with a container that does such an act to its shim, and another one.
pub fn stormy(act: &str) -> Pod {
    let script = format!("echo begins; exec adversary {act}");
    Pod::new(act)
        .pid_namespace(PidNamespace::Pod)
        .container(Program::new("stormy").begins_with_script(&script))
        .container(Program::new("other"))
}

/// Where a container is not process 1 of a pid namespace, it makes children of its shim without an end, or stops and continues one:
/// each sends the shim a signal. Until podshim saw to them at a pace it took 1.7 s here.
#[tokio::test]
async fn a_storm_of_children_costs_the_shim_little() -> Result<()> {
    let node = Containerd::connect().await?;
    for act in ["siblings", "stops"] {
        let mut pod = stormy(act).run(&node, Runtime::Podshim).await?;
        let _ends = EndsWithTest::of(&pod)?;
        pod.start_all(&["other", "stormy"]).await?;
        pod.wait_for_output("stormy", "begins").await?;
        let shim = pod.shim_pid()?;
        let (before, inside) = (processor_time(shim)?.own, time_inside(&node, &pod)?);
        wait::quiet_time(STORM).await;
        let (own, inside) = (processor_time(shim)?.own - before, time_inside(&node, &pod)? - inside);
        println!("{act}: {own:?} of the shim's own in {STORM:?}, {inside:?} in the pod");
        ensure!(own <= STORM / SHARE, "{act}: {own:?} of the shim's own in {STORM:?}, {inside:?} in the pod");
        ensure!(inside >= STORM / 20, "{act}: {inside:?}: nothing was done at all");
        ensure_serving(&pod, "other").await?;
        wait::at_most(PROMPT, "a stop", pod.stop("stormy", Duration::from_secs(1))).await?;
        wait::at_most(PROMPT, "the end of the pod", pod.remove()).await?;
    }
    Ok(())
}
