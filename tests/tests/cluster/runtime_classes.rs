//! RuntimeClasses: where their pods run, and what they are charged.

use anyhow::{Result, ensure};
use e2e::durations::seconds;
use e2e::{Cluster, Workload, wait};
use serde_json::{Value, json};

use crate::support::{SOON, started_in_order, with_proxy};

/// The label of the nodes that have podshim.
const LABEL: &str = "podshim.io/e2e-ready";

async fn make_class(cluster: &Cluster, name: &str, fields: &Value) -> Result<()> {
    let mut class = json!({
        "apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": { "name": name }, "handler": "podshim",
    });
    for (key, value) in fields.as_object().into_iter().flatten() {
        class[key] = value.clone();
    }
    cluster.apply(&class).await
}

/// A class whose nodes have a label: its pods wait for such a node, and run nowhere else.
#[tokio::test]
async fn pods_run_where_the_class_says() -> Result<()> {
    let cluster = Cluster::connect()?;
    cluster.kubectl(&["label", "nodes", "--all", &format!("{LABEL}-")]).await?;
    make_class(&cluster, "podshim-labelled", &json!({ "scheduling": { "nodeSelector": { LABEL: "true" } } }))
        .await?;

    let workload = Workload::deployment(with_proxy("labelled"), 3);
    let workload = workload.pod_field("runtimeClassName", json!("podshim-labelled")).run(&cluster).await?;
    workload.wait_pods("three pods", SOON, |pods| pods.len() == 3).await?;
    wait::quiet_time(seconds(3)).await;
    let waiting = workload.pods().await?;
    ensure!(waiting.iter().all(|pod| pod.node.is_empty()), "{waiting:#?}");

    cluster.kubectl(&["label", "node", "node-2", &format!("{LABEL}=true")]).await?;
    let pods = workload.wait_ready(3, SOON).await?;
    ensure!(pods.iter().all(|pod| pod.node == "node-2"), "{pods:#?}");
    for pod in &pods {
        started_in_order(&workload.timeline(&pod.name)?)?;
    }
    workload.delete(SOON).await?;
    cluster.kubectl(&["label", "nodes", "--all", &format!("{LABEL}-")]).await?;
    cluster.kubectl(&["delete", "runtimeclass", "podshim-labelled"]).await?;
    Ok(())
}

/// A class with overhead: the pod's cgroup may have that much more.
#[tokio::test]
async fn the_overhead_is_added_to_the_pods_limit() -> Result<()> {
    const MIB: u64 = 1 << 20;
    let cluster = Cluster::connect()?;
    make_class(&cluster, "podshim-overhead", &json!({ "overhead": { "podFixed": { "memory": "8Mi" } } }))
        .await?;
    let mut manifest = with_proxy("overhead");
    for name in ["proxy", "app"] {
        manifest = manifest.with_resources(name, json!({ "limits": { "memory": "16Mi" } }));
    }
    let workload = Workload::pod(manifest).pod_field("runtimeClassName", json!("podshim-overhead"));
    let workload = workload.run(&cluster).await?;
    let pods = workload.wait_ready(1, SOON).await?;
    let pod = workload.object().await?;
    ensure!(pod["spec"]["overhead"]["memory"] == "8Mi", "{pod:#}");
    let number: u32 = pods[0].node.trim_start_matches("node-").parse()?;
    let limit = memory_limit(&cluster.node(number)?.cgroup(), &pods[0].uid)?;
    ensure!(limit == 40 * MIB, "the pod's limit is {limit}");
    workload.delete(SOON).await?;
    cluster.kubectl(&["delete", "runtimeclass", "podshim-overhead"]).await?;
    Ok(())
}

/// The limit of the pod's cgroup, which the kubelet makes by the pod's class of service and its UID.
fn memory_limit(node: &str, uid: &str) -> Result<u64> {
    let pod = format!("kubepods/burstable/pod{uid}");
    let files = [
        format!("/sys/fs/cgroup/memory{node}/{pod}/memory.limit_in_bytes"),
        format!("/sys/fs/cgroup{node}/{pod}/memory.max"),
    ];
    let found = files.iter().find_map(|file| std::fs::read_to_string(file).ok());
    let Some(found) = found else { anyhow::bail!("none of these is there: {files:?}") };
    Ok(found.trim().parse()?)
}
