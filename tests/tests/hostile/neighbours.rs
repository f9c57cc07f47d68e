//! Attacks of one pod on another.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::cri::ContainerState;
use e2e::{Containerd, Pod, Program, wait};

use crate::support::{PROMPT, ensure_serving, podshim};

/// A handler whose configuration passes all annotations of the pods' authors to the shim.
const OPEN: &str = "podshim-open";

/// Issue 18: a pod that named another pod's sandbox as its group joined that pod's shim. Its stop ended the other pod's
/// containers, and the other pod's own stop never returned.
#[tokio::test]
async fn a_pod_that_names_another_as_its_group_gets_a_shim_of_its_own() -> Result<()> {
    let node = Containerd::connect().await?;
    let pod = |name: &str| {
        Pod::new(name)
            .annotate("plan", "s1=sidecar, app=main")
            .container(Program::new("s1"))
            .container(Program::new("app"))
    };
    let mut victim = pod("victim").run_handler(&node, OPEN).await?;
    victim.start_all(&["s1", "app"]).await?;
    let mut attacker = pod("attacker")
        .annotate_with("io.containerd.runc.v2.group", victim.sandbox())
        .annotate_with("io.kubernetes.cri.sandbox-id", victim.sandbox())
        .annotate_with("io.kubernetes.cri.sandbox-name", "victim")
        .run_handler(&node, OPEN)
        .await?;
    attacker.start_all(&["s1", "app"]).await?;
    ensure!(victim.shim_pid()? != attacker.shim_pid()?, "they share a shim");
    let shown = podshim(&node, &["inspect", victim.sandbox()]).await?;
    ensure!(shown.contains(victim.name()) && !shown.contains(attacker.name()), "{shown}");
    let shown = podshim(&node, &["inspect", attacker.sandbox()]).await?;
    ensure!(shown.contains(attacker.name()), "{shown}");
    attacker.remove().await?;
    wait::quiet_time(Duration::from_millis(500)).await;
    for name in ["s1", "app"] {
        ensure!(victim.status(name).await?.state() == ContainerState::ContainerRunning, "{name} was ended");
    }
    ensure_serving(&victim, "app").await?;
    wait::at_most(PROMPT * 2, "the victim cannot be stopped", victim.stop_sandbox()).await?;
    victim.remove().await
}
