//! The longest durations that a kubelet or an operator can pass.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::Event::Term;
use e2e::{Containerd, Pod, Program, Runtime};

use crate::support::{ensure_serving, podshim};

/// Issue 18: with such a grace period the server panicked when the mains had ended.
#[tokio::test]
async fn t5_the_longest_grace_that_a_kubelet_can_say_ends_no_shim() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("endless-grace")
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("restart-policy", "Never")
        .kubelet_grace(Duration::from_secs(i64::MAX.unsigned_abs()))
        .container(Program::new("s1"))
        .container(Program::new("app").exits(0))
        .run(&node, Runtime::Podshim)
        .await?;
    let shim = pod.shim_pid()?;
    pod.start_all(&["s1", "app"]).await?;
    let soon = Duration::from_secs(20);
    pod.wait_exited("app", soon).await?;
    pod.wait_for("s1", Term, 1, soon).await?;
    let status = pod.wait_exited("s1", soon).await?;
    ensure!(status.exit_code == 0, "{status:?}");
    ensure!(pod.shim_pid()? == shim, "the shim was ended");
    pod.remove().await
}

/// The same with the longest duration that an operator can pass.
#[tokio::test]
async fn t5_the_longest_grace_that_an_operator_can_say_ends_no_shim() -> Result<()> {
    let node = Containerd::connect().await?;
    let mut pod = Pod::new("endless-stop")
        .annotate("plan", "s1=sidecar, app=main")
        .container(Program::new("s1"))
        .container(Program::new("app"))
        .run(&node, Runtime::Podshim)
        .await?;
    pod.start_all(&["s1", "app"]).await?;
    ensure_serving(&pod, "app").await?;
    let longest = u64::MAX.to_string();
    let printed = podshim(&node, &["stop", "--grace", &longest, pod.sandbox()]).await?;
    ensure!(printed.contains("stopped"), "{printed}");
    pod.remove().await
}
