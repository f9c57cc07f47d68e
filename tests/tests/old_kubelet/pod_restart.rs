//! `fatal.<c>=restart` (R14): the kubelet sees neither an exit nor a restart.

use anyhow::{Result, ensure};
use e2e::Event::{Exiting, Started, Starting, Term};
use e2e::durations::seconds;
use e2e::{Kubelet, Manifest, Program};

use crate::support::{SOON, last, on_both, started};

const NAMES: [&str; 3] = ["warm", "proxy", "app"];

/// R14, T1, S2: the main fails. With containerd's own shim the kubelet restarts it alone, beside a proxy that runs on. With
/// podshim all three stop and start in order, and the kubelet counts no restart.
#[tokio::test]
async fn r14_a_kubelet_sees_nothing_of_a_pods_restart() -> Result<()> {
    let lives = on_both(async |kubelet: &Kubelet| {
        let manifest = Manifest::new("whole")
            .annotate("plan", "warm=init, proxy=sidecar, app=main")
            .annotate("fatal.app", "restart")
            .container(Program::new("warm").runs_for(seconds(4)).exits(0))
            .container(Program::new("proxy"))
            .container(Program::new("app").runs_for_each(&[seconds(8), seconds(600)]).exits_each(&[3, 0]));
        let pod = started(kubelet, manifest, &["proxy", "app"]).await?;
        pod.wait_for("app", Started, 2, SOON).await?;
        pod.wait_seen(SOON).await?;
        let status = pod
            .wait_status("that proxy and app run", SOON, |status| {
                ["proxy", "app"].iter().all(|name| status.of(name).is_ok_and(|it| it.state.is_running()))
            })
            .await?;
        let timeline = pod.timeline()?;
        pod.delete()?;
        pod.wait_ended(SOON).await?;
        Ok((status, timeline))
    });
    let lives = lives.await?;
    let (status, timeline) = lives.stock;
    timeline.has_not_restarted("proxy")?;
    ensure!(status.of("app")?.restarts == 1, "{status:#?}");

    let (status, timeline) = lives.podshim;
    for name in NAMES {
        ensure!(status.of(name)?.restarts == 0, "{name}: {status:#?}");
        ensure!(timeline.count(name, Starting) == 2, "{name}\n{timeline}");
    }
    timeline.in_order(&[("app", Exiting), ("proxy", Term), ("proxy", Exiting)])?;
    ensure!(timeline.time_of("proxy", Exiting)? <= last(&timeline, "warm", Starting)?, "{timeline}");
    ensure!(last(&timeline, "warm", Exiting)? <= last(&timeline, "proxy", Starting)?, "{timeline}");
    ensure!(last(&timeline, "proxy", Starting)? <= last(&timeline, "app", Starting)?, "{timeline}");
    Ok(())
}
