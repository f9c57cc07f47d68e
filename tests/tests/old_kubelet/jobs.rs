//! Pods that end by themselves, and the status that the kubelet reports then: it counts every container of
//! `containers`, sidecars too.

use anyhow::{Result, ensure};
use e2e::Event::{Exiting, Started, Starting, Term};
use e2e::durations::seconds;
use e2e::static_pod::RestartPolicy;
use e2e::{ContainerState, Kubelet, Manifest, Phase, PodStatus, Program, Runtime, Timeline, wait};

use crate::support::{SOON, on_both};

/// Longer than a kubelet takes to see an exit and to report it.
const INTERVAL: std::time::Duration = seconds(5);

/// A job beside a proxy that ends only at its stop signal, and not with 0.
fn job(policy: RestartPolicy, main: Program) -> Manifest {
    Manifest::new("job")
        .policy(policy)
        .annotate("plan", "proxy=sidecar, job=main")
        .container(Program::new("proxy").term_exit_code(143))
        .container(main)
}

/// The status that the kubelet reports when the pod has ended. With containerd's own shim the pod never ends; there it
/// is the status after `runs` runs of the job.
async fn outcome(kubelet: &Kubelet, manifest: Manifest, runs: usize) -> Result<(PodStatus, Timeline)> {
    let pod = manifest.run(kubelet)?;
    pod.wait_for("job", Exiting, runs, SOON).await?;
    let status = match kubelet.runtime() {
        Runtime::Runc => {
            wait::quiet_time(INTERVAL).await;
            pod.status().await?
        }
        Runtime::Podshim => pod.wait_status("that the pod has ended", SOON, PodStatus::has_ended).await?,
    };
    pod.delete()?;
    Ok((status, pod.wait_ended(SOON).await?))
}

/// A job that never ends because its sidecar does not (kubernetes issue 25908).
fn hangs(status: &PodStatus) -> Result<()> {
    ensure!(status.phase == Phase::Running && status.of("proxy")?.state.is_running(), "{status:#?}");
    Ok(())
}

/// J1, J2, J8: the job succeeded.
#[tokio::test]
async fn j1_j2_j8_never_succeeded() -> Result<()> {
    let lives = on_both(async |kubelet: &Kubelet| {
        let main = Program::new("job").runs_for(seconds(1));
        outcome(kubelet, job(RestartPolicy::Never, main), 1).await
    });
    let lives = lives.await?;
    hangs(&lives.stock.0)?;

    let (status, timeline) = lives.podshim;
    timeline.in_order(&[("job", Exiting), ("proxy", Term), ("proxy", Exiting)])?;
    ensure!(status.phase == Phase::Succeeded, "{status:#?}");
    ensure!((status.code("job"), status.code("proxy")) == (Some(0), Some(0)), "{status:#?}");
    timeline.has_not_restarted("job")?;
    timeline.has_not_restarted("proxy")
}

/// J1, J2, J3: the job failed; the sidecar shows 0 all the same.
#[tokio::test]
async fn j1_j3_j8_never_failed() -> Result<()> {
    let lives = on_both(async |kubelet: &Kubelet| {
        let main = Program::new("job").runs_for(seconds(1)).exits(3);
        outcome(kubelet, job(RestartPolicy::Never, main), 1).await
    });
    let lives = lives.await?;
    hangs(&lives.stock.0)?;

    let (status, timeline) = lives.podshim;
    timeline.in_order(&[("job", Exiting), ("proxy", Term), ("proxy", Exiting)])?;
    ensure!(status.phase == Phase::Failed, "{status:#?}");
    ensure!((status.code("job"), status.code("proxy")) == (Some(3), Some(0)), "{status:#?}");
    timeline.has_not_restarted("job")
}

/// J5, R8: the kubelet restarts the job while its sidecar lives on; then the pod ends.
#[tokio::test]
async fn j5_j1_r8_on_failure_succeeded_at_the_second_try() -> Result<()> {
    let lives = on_both(async |kubelet: &Kubelet| {
        let main = Program::new("job").runs_for(seconds(1)).exits_each(&[1, 0]);
        outcome(kubelet, job(RestartPolicy::OnFailure, main), 2).await
    });
    let lives = lives.await?;
    hangs(&lives.stock.0)?;

    let (status, timeline) = lives.podshim;
    ensure!(status.phase == Phase::Succeeded && status.of("job")?.restarts == 1, "{status:#?}");
    ensure!((status.code("job"), status.code("proxy")) == (Some(0), Some(0)), "{status:#?}");
    ensure!(timeline.count("job", Starting) == 2, "{timeline}");
    timeline.has_not_restarted("proxy")?;
    timeline.run_together("proxy", "job")
}

/// I2, J9: an init failed under Never. What follows it never runs, and the kubelet has the reason where `kubectl
/// describe` shows it.
#[tokio::test]
async fn i2_j9_never_failed_by_an_init() -> Result<()> {
    let lives = on_both(async |kubelet: &Kubelet| {
        let pod = Manifest::new("bad-init")
            .policy(RestartPolicy::Never)
            .annotate("plan", "proxy=sidecar, fetch=init, job=main")
            .container(Program::new("proxy"))
            // Longer than a kubelet takes in its first pods from one container to the next.
            .container(Program::new("fetch").runs_for(seconds(4)).exits(4))
            .container(Program::new("job").runs_for(seconds(1)))
            .run(kubelet)?;
        pod.wait_for("fetch", Exiting, 1, SOON).await?;
        let status = match kubelet.runtime() {
            Runtime::Runc => {
                pod.wait_for("job", Started, 1, SOON).await?;
                pod.status().await?
            }
            Runtime::Podshim => {
                pod.wait_status("Failed", SOON, |status| {
                    status.phase == Phase::Failed && status.code("proxy").is_some()
                })
                .await?
            }
        };
        pod.delete()?;
        Ok((status, pod.wait_ended(SOON).await?))
    });
    let lives = lives.await?;
    lives.stock.1.run_together("fetch", "job")?;

    let (status, timeline) = lives.podshim;
    timeline.doesnt_start("job")?;
    timeline.in_order(&[("fetch", Exiting), ("proxy", Term), ("proxy", Exiting)])?;
    ensure!((status.code("fetch"), status.code("proxy")) == (Some(4), Some(0)), "{status:#?}");
    let ContainerState::Terminated { code: 125, message, .. } = &status.of("job")?.state else {
        anyhow::bail!("{status:#?}");
    };
    ensure!(message.contains("not started: init \"fetch\" failed with 4"), "{message}");
    Ok(())
}

/// I5: an init of `containers` that has ended is not ready for the kubelet, and so its pod is not, for as long as it lives.
#[tokio::test]
async fn i5_found_k6_on_failure_a_pod_is_not_ready_after_its_init() -> Result<()> {
    let kubelet = Kubelet::connect(Runtime::Podshim).await?;
    let pod = Manifest::new("not-ready")
        .policy(RestartPolicy::OnFailure)
        .annotate("plan", "proxy=sidecar, fetch=init, job=main")
        .container(Program::new("proxy"))
        .container(Program::new("fetch").runs_for(seconds(1)))
        .container(Program::new("job"))
        .run(&kubelet)?;
    pod.wait_for("job", Started, 1, SOON).await?;
    wait::quiet_time(INTERVAL).await;
    let status = pod.status().await?;
    ensure!(status.phase == Phase::Running && !status.ready, "{status:#?}");
    ensure!(status.code("fetch") == Some(0) && !status.of("fetch")?.ready, "{status:#?}");
    ensure!(status.of("proxy")?.ready && status.of("job")?.ready, "{status:#?}");
    pod.delete()?;
    let timeline = pod.wait_ended(SOON).await?;
    timeline.has_not_restarted("fetch")
}

/// T5, J1: a sidecar that ignores its stop signal when the job is over has the pod's grace to end. podshim knows that
/// grace only from the kubelet's annotation on the containers (`container_annotations`); without it the grace is 30 s.
#[tokio::test]
async fn t5_j1_the_kubelets_grace_bounds_the_end_of_a_job() -> Result<()> {
    let lives = on_both(async |kubelet: &Kubelet| {
        let manifest = Manifest::new("job-grace")
            .policy(RestartPolicy::Never)
            .grace(seconds(4))
            .annotate("plan", "proxy=sidecar, job=main")
            .container(Program::new("proxy").ignores_term())
            .container(Program::new("job").runs_for(seconds(1)));
        let begin = tokio::time::Instant::now();
        Ok((outcome(kubelet, manifest, 1).await?, begin.elapsed()))
    });
    let lives = lives.await?;
    hangs(&lives.stock.0.0)?;

    let ((status, timeline), took) = lives.podshim;
    timeline.in_order(&[("job", Exiting), ("proxy", Term)])?;
    ensure!(timeline.count("proxy", Exiting) == 0, "it was to be killed\n{timeline}");
    ensure!(status.phase == Phase::Succeeded && status.code("proxy") == Some(0), "{status:#?}");
    ensure!(took < seconds(30), "it took {took:?}\n{timeline}");
    Ok(())
}

/// R13, J1: the kubelet sees the one exit that no code covers. What was restarted in place it neither sees nor counts.
#[tokio::test]
async fn r13_j1_a_job_is_tried_again_by_its_codes() -> Result<()> {
    let kubelet = Kubelet::connect(Runtime::Podshim).await?;
    let main = Program::new("job").runs_for(seconds(1)).exits_each(&[42, 42, 3]);
    let manifest = job(RestartPolicy::Never, main).annotate("restart.job", "on-failure;codes=42");
    let (status, timeline) = outcome(&kubelet, manifest, 3).await?;
    timeline.in_order(&[("job", Exiting), ("proxy", Term), ("proxy", Exiting)])?;
    ensure!(status.phase == Phase::Failed && status.of("job")?.restarts == 0, "{status:#?}");
    ensure!((status.code("job"), status.code("proxy")) == (Some(3), Some(0)), "{status:#?}");
    ensure!(timeline.count("job", Starting) == 3, "{timeline}");
    timeline.has_not_restarted("proxy")
}
