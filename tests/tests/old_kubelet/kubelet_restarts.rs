//! The kubelet is killed and started again; containerd, the shims and the pods live on. Each test has kubelets of its
//! own.

use std::fs::File;

use anyhow::{Result, ensure};
use e2e::Event::{Exiting, Started, Starting, Term};
use e2e::durations::seconds;
use e2e::{Kubelet, Manifest, Program};

use crate::support::{SOON, on_both_alone, started};

/// F11, U7: in the middle of a hold. The new kubelet finds the held main running and leaves it alone. The main
/// starts once, when the gate opens.
#[tokio::test]
async fn u7_the_kubelet_is_killed_during_a_hold() -> Result<()> {
    let lives = on_both_alone(async |kubelet: &Kubelet| {
        let pod = Manifest::new("hold")
            .annotate("plan", "proxy=sidecar, app=main")
            .annotate("ready.proxy", "exec:test -e /pod/open;period=100ms;fail=10000")
            .container(Program::new("app"))
            .container(Program::new("proxy"))
            .run(kubelet)?;
        pod.wait_for("proxy", Started, 1, SOON).await?;
        pod.wait_seen(SOON).await?;
        kubelet.kill().await?;
        kubelet.start_again().await?;
        pod.wait_seen(SOON).await?;
        let held = pod.timeline()?;
        File::create(pod.directory().join("open"))?;
        pod.wait_for("app", Started, 1, SOON).await?;
        let status = pod.wait_seen(SOON).await?;
        pod.delete()?;
        Ok((held, status, pod.wait_ended(SOON).await?))
    });
    let lives = lives.await?;
    ensure!(lives.stock.0.count("app", Started) == 1, "the app waited for its proxy\n{}", lives.stock.0);

    let (held, status, timeline) = lives.podshim;
    held.doesnt_start("app")?;
    for name in ["app", "proxy"] {
        timeline.has_not_restarted(name)?;
        ensure!(status.of(name)?.restarts == 0, "{status:#?}");
    }
    timeline.in_order(&[("app", Exiting), ("proxy", Term)])
}

/// N2, K15, T3: in the middle of a stop, after the manifest was removed. The new kubelet knows the pod only from its
/// containers, and stops them all once more; the sidecar gets its signal once, in its turn. (If no volume of the pod is
/// a mount, this kubelet itself kills every process in the pod's cgroup. Nothing below the CRI can prevent that.)
#[tokio::test]
async fn n2_k15_the_kubelet_is_killed_during_a_stop() -> Result<()> {
    let lives = on_both_alone(async |kubelet: &Kubelet| {
        let manifest = Manifest::new("stop")
            .memory_volume()
            .annotate("plan", "proxy=sidecar, app=main")
            .container(Program::new("app").term_delay(seconds(12)))
            .container(Program::new("proxy"));
        let pod = started(kubelet, manifest, &["proxy", "app"]).await?;
        pod.delete()?;
        pod.wait_for("app", Term, 1, SOON).await?;
        kubelet.kill().await?;
        kubelet.start_again().await?;
        pod.wait_ended(SOON).await
    });
    let lives = lives.await?;
    lives.stock.in_order(&[("proxy", Exiting), ("app", Exiting)])?;

    let timeline = lives.podshim;
    timeline.in_order(&[("app", Term), ("app", Exiting), ("proxy", Term), ("proxy", Exiting)])?;
    for (name, event) in [("proxy", Term), ("proxy", Starting), ("app", Starting)] {
        ensure!(timeline.count(name, event) == 1, "{name} {event:?} more than once\n{timeline}");
    }
    Ok(())
}
