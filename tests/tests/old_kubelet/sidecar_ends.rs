//! Sidecars that end without a request: by a crash while the main drains, and by the OOM killer.

use anyhow::{Result, ensure};
use e2e::Event::{Exiting, Started, Starting, Term};
use e2e::durations::{REMAKING, seconds};
use e2e::instance::signal;
use e2e::static_pod::RestartPolicy;
use e2e::{ContainerState, Kubelet, Manifest, Phase, PodStatus, Program, Runtime};

use crate::support::{SOON, last, on_both, started};

/// R2, R3, R8, T1: a sidecar crashes while the main drains. podshim restarts it without the kubelet, and stops it in
/// order in the end. With containerd's own shim the sidecar has ended by then.
#[tokio::test]
async fn r2_r3_a_sidecar_crashes_while_the_main_drains() -> Result<()> {
    let lives = on_both(async |kubelet: &Kubelet| {
        let manifest = Manifest::new("crash")
            .annotate("plan", "proxy=sidecar, app=main")
            .container(Program::new("proxy"))
            .container(Program::new("app").term_delay(seconds(10)));
        let pod = started(kubelet, manifest, &["proxy", "app"]).await?;
        pod.delete()?;
        pod.wait_for("app", Term, 1, SOON).await?;
        if kubelet.runtime() == Runtime::Podshim {
            signal(pod.pid("proxy").await?, libc::SIGKILL)?;
            pod.wait_for("proxy", Started, 2, REMAKING).await?;
        }
        pod.wait_ended(SOON).await
    });
    let lives = lives.await?;
    lives.stock.in_order(&[("proxy", Exiting), ("app", Exiting)])?;

    let timeline = lives.podshim;
    ensure!(timeline.count("proxy", Starting) == 2, "{timeline}");
    let restarted = last(&timeline, "proxy", Starting)?;
    ensure!(restarted < timeline.time_of("app", Exiting)?, "it came back too late\n{timeline}");
    timeline.in_order(&[("app", Term), ("app", Exiting), ("proxy", Term), ("proxy", Exiting)])
}

/// R10, R1, J1, J2: a job's sidecar exceeds its memory limit. podshim restarts it each time without a report to the
/// kubelet, and the job succeeds. With containerd's own shim the sidecar is gone after the first OOM kill, and the job
/// counts as failed.
#[tokio::test]
async fn r10_j2_a_sidecar_out_of_memory_in_a_job() -> Result<()> {
    let lives = on_both(async |kubelet: &Kubelet| {
        let pod = Manifest::new("oom")
            .policy(RestartPolicy::Never)
            .annotate("plan", "proxy=sidecar, job=main")
            .container(Program::new("proxy").allocates_mib(64).memory_limit(20 << 20))
            .container(Program::new("job").runs_for(seconds(8)))
            .run(kubelet)?;
        pod.wait_for("job", Started, 1, SOON).await?;
        if kubelet.runtime() == Runtime::Podshim {
            pod.wait_for("proxy", Starting, 3, SOON).await?;
        }
        let during = pod
            .wait_status("that the job runs", SOON, |status| {
                status.of("job").is_ok_and(|job| job.state.is_running())
            })
            .await?;
        let status = pod.wait_status("that the pod has ended", SOON, PodStatus::has_ended).await?;
        pod.delete()?;
        Ok((during, status, pod.wait_ended(SOON).await?))
    });
    let lives = lives.await?;
    let (_, status, timeline) = lives.stock;
    timeline.has_not_restarted("proxy")?;
    ensure!(status.phase == Phase::Failed && status.code("job") == Some(0), "{status:#?}");
    let state = &status.of("proxy")?.state;
    ensure!(
        matches!(state, ContainerState::Terminated { code: 137, reason, .. } if reason == "OOMKilled"),
        "{state:?}"
    );

    let (during, status, timeline) = lives.podshim;
    timeline.has_restarted("proxy")?;
    let proxy = during.of("proxy")?;
    ensure!(proxy.state.is_running() && proxy.restarts == 0, "{during:#?}");
    ensure!(status.phase == Phase::Succeeded, "{status:#?}");
    ensure!((status.code("job"), status.code("proxy")) == (Some(0), Some(0)), "{status:#?}");
    let proxy = &status.of("proxy")?.state;
    ensure!(matches!(proxy, ContainerState::Terminated { reason, .. } if reason == "Completed"), "{proxy:?}");
    Ok(())
}
