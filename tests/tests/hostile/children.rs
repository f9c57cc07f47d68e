//! What a container's process 1 may do to its parent, which is the shim.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::cri::ContainerState;
use e2e::{Containerd, Pod, Program, Runtime, wait};

use crate::support::{EndsWithTest, PROMPT, ensure_serving};

/// A process that asks its parent to trace it (PTRACE_TRACEME) stops at each signal, and waitid(2) reports that to its parent as it does
/// an exit. Until podshim told them apart the task was stopped for containerd and lived on.
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
