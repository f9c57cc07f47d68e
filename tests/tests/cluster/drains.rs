//! `kubectl drain`: evictions keep the order. These tests run alone, as they take a node from every other.

use anyhow::{Result, ensure};
use e2e::Event::{Exiting, Started, Term};
use e2e::durations::seconds;
use e2e::static_pod::RestartPolicy;
use e2e::{Cluster, Manifest, Program, Runtime, Workload};
use serde_json::json;

use crate::support::{SOON, app, readiness, started_in_order, stopped_in_order, with_gate, with_proxy};

/// Drains node 1. As the operator does it, with the pods' own grace periods.
async fn drain(cluster: &Cluster) -> Result<()> {
    let drain =
        ["drain", "node-1", "--force", "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=180s"];
    cluster.kubectl(&drain).await.map(drop)
}

async fn uncordon(cluster: &Cluster) -> Result<()> {
    cluster.kubectl(&["uncordon", "node-1"]).await.map(drop)
}

/// T1, T3: pods that are evicted stop in order, and their controller makes them again on the other node, in order.
#[tokio::test]
async fn t1_t3_evicted_pods_stop_in_order() -> Result<()> {
    let cluster = Cluster::connect()?;
    // All on node 1, as the other may have no new ones.
    cluster.kubectl(&["cordon", "node-2"]).await?;
    let deployment = Workload::deployment(with_proxy("evicted"), 2).run(&cluster).await?;
    let bare = Workload::pod(with_proxy("bare")).run(&cluster).await?;
    let stock = Workload::pod(with_proxy("stock")).on(Runtime::Runc).run(&cluster).await?;
    let evicted = deployment.wait_ready(2, SOON).await?;
    bare.wait_ready(1, SOON).await?;
    stock.wait_ready(1, SOON).await?;
    cluster.kubectl(&["uncordon", "node-2"]).await?;

    drain(&cluster).await?;
    let replaced = deployment.wait_ready(2, SOON).await;
    uncordon(&cluster).await?;
    let replaced = replaced?;
    for pod in &evicted {
        ensure!(pod.node == "node-1", "{pod:#?}");
        stopped_in_order(&deployment.timeline(&pod.name)?)?;
    }
    stopped_in_order(&bare.timeline(bare.name())?)?;
    for pod in &replaced {
        ensure!(pod.node == "node-2", "{pod:#?}");
        started_in_order(&deployment.timeline(&pod.name)?)?;
    }
    // With containerd's own shim the proxy was gone before its app.
    stock.timeline(stock.name())?.before(("proxy", Exiting), ("app", Exiting))
}

/// T1: a disruption budget lets one pod go at a time. The next goes when a new one is ready, which its gate delays.
#[tokio::test]
async fn t1_a_drain_under_a_disruption_budget() -> Result<()> {
    let cluster = Cluster::connect()?;
    cluster.kubectl(&["cordon", "node-2"]).await?;
    let manifest = with_gate("budget")
        .container(Program::new("proxy").listens(8080, seconds(5)))
        .container_with(app(), readiness());
    let deployment = Workload::deployment(manifest, 2).run(&cluster).await?;
    let budget = json!({
        "apiVersion": "policy/v1beta1", "kind": "PodDisruptionBudget", "metadata": { "name": deployment.name() },
        "spec": { "minAvailable": 1, "selector": { "matchLabels": { "app": deployment.name() } } },
    });
    cluster.apply(&budget).await?;
    let evicted = deployment.wait_ready(2, SOON).await?;
    cluster.kubectl(&["uncordon", "node-2"]).await?;
    drain(&cluster).await?;
    let replaced = deployment.wait_ready(2, SOON).await;
    uncordon(&cluster).await?;
    cluster.kubectl(&["delete", "poddisruptionbudget", deployment.name()]).await?;

    let mut stops = Vec::new();
    for pod in &evicted {
        let timeline = deployment.timeline(&pod.name)?;
        stopped_in_order(&timeline)?;
        stops.push(timeline.time_of("app", Term)?);
    }
    let mut starts = Vec::new();
    for pod in &replaced? {
        starts.push(deployment.timeline(&pod.name)?.time_of("app", Started)?);
    }
    ensure!(starts.iter().min() < stops.iter().max(), "both were evicted at once: {starts:?} {stops:?}");
    Ok(())
}

/// T5, J1: a Job's pod is evicted while its main ignores the signal: it has its grace, then its sidecar's turn comes.
#[tokio::test]
async fn t5_an_evicted_job_has_its_grace() -> Result<()> {
    let cluster = Cluster::connect()?;
    let manifest = Manifest::new("deaf")
        .policy(RestartPolicy::Never)
        .grace(seconds(4))
        .annotate("plan", "proxy=sidecar, job=main")
        .container(Program::new("proxy"))
        .container(Program::new("job").ignores_term());
    let pod = Workload::pod(manifest).on_node(1).run(&cluster).await?;
    pod.wait_ready(1, SOON).await?;
    let drained = drain(&cluster).await;
    uncordon(&cluster).await?;
    drained?;
    let timeline = pod.timeline(pod.name())?;
    timeline.in_order(&[("job", Term), ("proxy", Term), ("proxy", Exiting)])?;
    ensure!(timeline.count("job", Exiting) == 0, "the job was to be killed\n{timeline}");
    timeline.distance(("job", Term), ("proxy", Term), seconds(4), seconds(2))
}
