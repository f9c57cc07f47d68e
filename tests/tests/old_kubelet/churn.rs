//! Pods of a kubelet that is killed and started again while they start and while they end, with podshim as the default
//! runtime: `runtimeClassName` is not set, and the kubelet knows no sidecars.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::durations::{AMPLE, SOON, milliseconds};
use e2e::{Inventory, Kubelet, Manifest, Program, Runtime, StaticPod, wait};
use tokio::time::Instant;

/// How many pods there are in all; `hack/stress --churn` sets it.
const CHURN: &str = "PODSHIM_CHURN_KUBELET";

/// How many pods the kubelet has at once.
const AT_ONCE: usize = 6;

/// The kubelet removes dead pods once a minute, and what is left of their directories and cgroups later.
const CLEANUP: Duration = Duration::from_secs(240);

/// The manifest in one place: the same one is given again and again, and so makes a pod with the same name and UID.
fn manifest(place: usize) -> Manifest {
    Manifest::new(&format!("churn-{place}"))
        .annotate("plan", "s1=sidecar, app=main")
        .annotate("ready.s1", "exec:test -e /tmp/ready;period=100ms;fail=1000")
        .grace(Duration::from_secs(5))
        .container(Program::new("app"))
        .container(Program::new("s1").ready_file("/tmp/ready", milliseconds(100)))
}

/// All pods once: given to the kubelet, and deleted. The kubelet is killed after a while of each.
async fn round(kubelet: &Kubelet, manifests: &[Manifest], turn: u32) -> Result<()> {
    let point = |half: u32| milliseconds(u64::from((turn * 700 + half * 350) % 2900));
    let pods: Vec<StaticPod<'_>> =
        manifests.iter().map(|manifest| manifest.clone().run(kubelet)).collect::<Result<_>>()?;
    restart_after(kubelet, point(0)).await?;
    for pod in &pods {
        pod.wait_seen(2 * AMPLE).await?;
    }
    for pod in &pods {
        pod.delete()?;
    }
    restart_after(kubelet, point(1)).await?;
    for pod in &pods {
        pod.wait_ended(2 * AMPLE).await?;
    }
    Ok(())
}

async fn restart_after(kubelet: &Kubelet, time: Duration) -> Result<()> {
    wait::quiet_time(time).await;
    kubelet.kill().await?;
    kubelet.start_again().await
}

#[tokio::test]
async fn pods_of_a_kubelet_that_is_restarted_come_and_go_and_nothing_stays() -> Result<()> {
    let kubelet = Kubelet::start(Runtime::Podshim).await?;
    let manifests: Vec<_> = (0..AT_ONCE).map(manifest).collect();
    round(&kubelet, &manifests[..1], 0).await?;
    wait::quiet_time(SOON).await;
    let before = Inventory::of(kubelet.node())?;
    let count = std::env::var(CHURN).ok().and_then(|count| count.parse().ok()).unwrap_or(AT_ONCE);
    let (start, rounds) = (Instant::now(), count.div_ceil(AT_ONCE));
    for turn in 1..=rounds {
        round(&kubelet, &manifests, turn.try_into()?).await?;
        println!(
            "kubelet: {} pods, {} restarts in {} s",
            turn * AT_ONCE,
            2 * turn,
            start.elapsed().as_secs()
        );
    }
    let left = before.wait_regained(kubelet.node(), CLEANUP).await?;
    ensure!(left.is_empty(), "left: {left:#?}");
    Ok(())
}
