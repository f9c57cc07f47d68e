//! What the kubelet removes: replaced containers while their pod lives on, and the whole pod at the end.

use anyhow::{Result, ensure};
use e2e::Event::{Started, Starting, Term};
use e2e::cri::ContainerState;
use e2e::durations::seconds;
use e2e::{Kubelet, Manifest, Program, wait};

use crate::support::on_both;

/// The kubelet collects garbage once a minute, and the rest of a pod some time after its end.
const COLLECTED: std::time::Duration = seconds(180);

/// N3, R8, S6: a main that ends again and again. The kubelet keeps one of its old containers and removes the others;
/// the live containers and the shim are not affected. Some time after the manifest was removed, nothing of the pod is
/// left on the node.
#[tokio::test]
async fn n3_r8_the_kubelet_collects_its_garbage() -> Result<()> {
    let lives = on_both(async |kubelet: &Kubelet| {
        let pod = Manifest::new("garbage")
            .grace(seconds(5))
            .annotate("plan", "proxy=sidecar, app=main")
            .container(Program::new("proxy"))
            .container(Program::new("app").runs_for_each(&[seconds(1), seconds(1), seconds(600)]).exits(1))
            .run(kubelet)?;
        pod.wait_for("app", Started, 3, COLLECTED).await?;
        let footprint = pod.footprint().await?;
        wait::until("an old container to be removed", COLLECTED, async || {
            let mut old = pod.containers().await?;
            old.retain(|container| container.state() == ContainerState::ContainerExited);
            Ok((old.len() == 1).then_some(()))
        })
        .await?;
        let timeline = pod.timeline()?;
        pod.wait_seen(COLLECTED).await?;
        pod.delete()?;
        pod.wait_ended(COLLECTED).await?;
        footprint.wait_gone(kubelet.node(), COLLECTED).await?;
        Ok(timeline)
    });
    let lives = lives.await?;
    for timeline in [lives.stock, lives.podshim] {
        timeline.has_not_restarted("proxy")?;
        ensure!(timeline.count("proxy", Term) == 0 && timeline.count("app", Starting) == 3, "{timeline}");
    }
    Ok(())
}
