//! DaemonSets: a pod on each node.

use anyhow::{Context, Result, ensure};
use e2e::{Cluster, Workload};
use serde_json::json;

use crate::support::{SOON, started_in_order, stopped_in_order, with_proxy};

/// U2, T1: each node has its pod, an update replaces one after the other, and each stops in order.
#[tokio::test]
async fn u2_t1_an_update_goes_from_node_to_node() -> Result<()> {
    let cluster = Cluster::connect()?;
    let set = Workload::daemon_set(with_proxy("daemons")).run(&cluster).await?;
    let old = set.wait_ready(2, SOON).await?;
    let mut nodes: Vec<_> = old.iter().map(|pod| pod.node.as_str()).collect();
    nodes.sort_unstable();
    ensure!(nodes == ["node-1", "node-2"], "{old:#?}");

    set.patch(&json!({ "spec": { "template": { "metadata": { "labels": { "version": "2" } } } } })).await?;
    cluster.kubectl(&["rollout", "status", &set.reference(), "--timeout=180s"]).await?;
    let new = set.wait_ready(2, SOON).await?;
    set.delete(SOON).await?;
    for pod in old.iter().chain(&new) {
        let timeline = set.timeline(&pod.name)?;
        started_in_order(&timeline)?;
        stopped_in_order(&timeline)?;
    }

    // One node at a time: a pod stopped only when the one that replaced the other had started.
    let mut starts = Vec::new();
    for pod in &new {
        starts.push(set.timeline(&pod.name)?.time_of("app", e2e::Event::Started)?);
    }
    let mut stops = Vec::new();
    for pod in &old {
        stops.push(set.timeline(&pod.name)?.time_of("app", e2e::Event::Term)?);
    }
    let (first, last) = (starts.iter().min().context("no pod")?, stops.iter().max().context("no pod")?);
    ensure!(first < last, "both pods were down at once: {starts:?} {stops:?}");
    Ok(())
}
