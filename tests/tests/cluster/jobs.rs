//! Jobs whose pods have sidecars, which a kubelet of 1.20 counts as any container.

use anyhow::{Result, ensure};
use e2e::Event::{Exiting, Starting, Term};
use e2e::durations::seconds;
use e2e::static_pod::RestartPolicy;
use e2e::{Cluster, Manifest, Phase, Program, Runtime, Workload, wait};
use serde_json::json;

use crate::support::SOON;

/// A job beside a proxy that ends only at its stop signal, and not with 0.
fn job(name: &str, policy: RestartPolicy, main: Program) -> Manifest {
    Manifest::new(name)
        .policy(policy)
        .annotate("plan", "proxy=sidecar, job=main")
        .container(Program::new("proxy").term_exit_code(143))
        .container(main)
}

/// J1, J2: with several pods at once and one after the other, the Job is complete.
#[tokio::test]
async fn j1_j2_a_job_of_four_pods_is_complete() -> Result<()> {
    let cluster = Cluster::connect()?;
    let manifest = job("complete", RestartPolicy::Never, Program::new("job").runs_for(seconds(1)));
    let workload = Workload::job(manifest).field("completions", json!(4)).field("parallelism", json!(2));
    let workload = workload.run(&cluster).await?;
    workload.wait_condition("Complete", SOON).await?;

    let status = workload.object().await?["status"].take();
    ensure!(status["succeeded"] == 4 && status["failed"].is_null(), "{status}");
    let pods = workload.pods().await?;
    ensure!(pods.len() == 4, "{pods:#?}");
    for pod in pods {
        let timeline = workload.timeline(&pod.name)?;
        timeline.in_order(&[("job", Exiting), ("proxy", Term), ("proxy", Exiting)])?;
        ensure!(pod.status.phase == Phase::Succeeded && pod.status.code("proxy") == Some(0), "{pod:#?}");
    }
    Ok(())
}

/// The same Job with containerd's own shim: its pod runs on when the job is done (kubernetes issue 25908).
#[tokio::test]
async fn j1_a_job_on_runc_never_completes() -> Result<()> {
    let cluster = Cluster::connect()?;
    let manifest = job("hangs", RestartPolicy::Never, Program::new("job").runs_for(seconds(1)));
    let workload = Workload::job(manifest).on(Runtime::Runc).run(&cluster).await?;
    let pods = workload.wait_pods("the job to be done", SOON, |pods| {
        pods.first().is_some_and(|pod| pod.status.code("job") == Some(0))
    });
    pods.await?;
    wait::quiet_time(seconds(10)).await;
    let status = workload.object().await?["status"].take();
    ensure!(status["active"] == 1 && status["succeeded"].is_null(), "{status}");
    Ok(())
}

/// J3: a main that fails makes its pod Failed, and the Job tries as often as it may.
#[tokio::test]
async fn j3_a_job_fails_after_its_tries() -> Result<()> {
    let cluster = Cluster::connect()?;
    let main = Program::new("job").runs_for(seconds(1)).exits(3);
    let workload = Workload::job(job("fails", RestartPolicy::Never, main)).field("backoffLimit", json!(1));
    let workload = workload.run(&cluster).await?;
    workload.wait_condition("Failed", SOON).await?;

    let pods = workload.pods().await?;
    ensure!(pods.len() == 2, "{pods:#?}");
    for pod in pods {
        ensure!(pod.status.phase == Phase::Failed && pod.status.code("job") == Some(3), "{pod:#?}");
        ensure!(pod.status.code("proxy") == Some(0), "{pod:#?}");
        workload.timeline(&pod.name)?.in_order(&[("job", Exiting), ("proxy", Term)])?;
    }
    Ok(())
}

/// J5, R8: under OnFailure the pod stays, its job is tried again beside the same sidecar, and the Job is complete.
#[tokio::test]
async fn j5_r8_a_job_succeeds_at_its_second_try() -> Result<()> {
    let cluster = Cluster::connect()?;
    let main = Program::new("job").runs_for(seconds(1)).exits_each(&[1, 0]);
    let workload = Workload::job(job("again", RestartPolicy::OnFailure, main)).run(&cluster).await?;
    workload.wait_condition("Complete", SOON).await?;

    let pods = workload.pods().await?;
    ensure!(pods.len() == 1 && pods[0].status.of("job")?.restarts == 1, "{pods:#?}");
    let timeline = workload.timeline(&pods[0].name)?;
    ensure!(timeline.count("job", Starting) == 2, "{timeline}");
    timeline.has_not_restarted("proxy")
}

/// T1, J8: a Job whose time is up deletes its pod, which stops in order.
#[tokio::test]
async fn t1_a_job_reaches_its_deadline() -> Result<()> {
    let cluster = Cluster::connect()?;
    let manifest = job("deadline", RestartPolicy::Never, Program::new("job").term_delay(seconds(1)));
    let workload = Workload::job(manifest).field("activeDeadlineSeconds", json!(20)).run(&cluster).await?;
    let pods = workload.wait_ready(1, SOON).await?;
    workload.wait_condition("Failed", SOON).await?;
    workload.wait_no_pods(SOON).await?;
    let timeline = workload.timeline(&pods[0].name)?;
    timeline.in_order(&[("job", Term), ("job", Exiting), ("proxy", Term), ("proxy", Exiting)])
}
