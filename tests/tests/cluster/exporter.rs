//! The exporter of `dist/monitoring/kubernetes`, applied: its pod has the metrics of its node's pods. Without
//! kube-rbac-proxy, whose image no test has: the test asks in the pod's network, where that would.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

use anyhow::{Context, Result, ensure};
use e2e::durations::seconds;
use e2e::instance::in_network_namespace;
use e2e::{Cluster, Containerd, Workload, wait};
use serde_json::{Value, json};

use crate::support::{SOON, load_image, with_proxy};

/// A namespace of the test's own: another test makes and removes `podshim`.
const NAMESPACE: &str = "podshim-e2e-metrics";
const IMAGE: &str = "podshim.test/podshim:exporter";

/// The exporter's objects, with what the test needs to be other than on a cluster with a registry.
async fn rendered(cluster: &Cluster) -> Result<Vec<Value>> {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../dist/monitoring/kubernetes/exporter.yaml");
    let output =
        cluster.kubectl(&["create", "--dry-run=client", "--output=json", "--filename", file]).await?;
    let objects = serde_json::Deserializer::from_str(&output).into_iter::<Value>();
    let mut objects = objects.collect::<Result<Vec<_>, _>>()?;
    for object in &mut objects {
        object["metadata"]["namespace"] = json!(NAMESPACE);
        let Some(pod) = object.pointer_mut("/spec/template/spec") else { continue };
        pod["nodeSelector"] = json!({ "kubernetes.io/hostname": "node-1" });
        let containers = pod["containers"].as_array_mut().context("no containers")?;
        containers.retain(|container| container["name"] == "metrics");
        let [metrics] = &mut containers[..] else { anyhow::bail!("no exporter: {containers:?}") };
        metrics["image"] = json!(IMAGE);
        metrics["imagePullPolicy"] = json!("Never");
    }
    Ok(objects)
}

/// What the exporter answers in its pod's own network.
async fn scrape(cluster: &Cluster, node: &Containerd) -> Result<String> {
    let list = cluster.get(&["--namespace", NAMESPACE, "pods"]).await?;
    let id = list["items"][0]["status"]["containerStatuses"][0]["containerID"].as_str();
    let id = id.and_then(|id| id.strip_prefix("containerd://")).context("no container")?;
    let network = File::open(format!("/proc/{}/ns/net", node.cri()?.container_pid(id).await?))?;
    in_network_namespace(network, || {
        let mut connection =
            TcpStream::connect_timeout(&SocketAddr::from(([127, 0, 0, 1], 9753)), seconds(5))?;
        connection.set_read_timeout(Some(seconds(5)))?;
        connection.write_all(b"GET /metrics HTTP/1.1\r\nHost: node\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        connection.read_to_string(&mut answer)?;
        Ok(answer)
    })
    .await
}

/// A live pod's gauge is in the metrics, and goes with the pod.
#[tokio::test]
async fn the_exporter_has_the_nodes_pods() -> Result<()> {
    let cluster = Cluster::connect()?;
    let node = cluster.node(1)?;
    let bin = fs::read_to_string(node.directory().join("bin"))?;
    load_image(&node, Path::new(bin.trim()), IMAGE).await?;
    cluster
        .apply(&json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } }))
        .await?;
    for object in rendered(&cluster).await? {
        cluster.apply(&object).await?;
    }
    let rollout =
        ["--namespace", NAMESPACE, "rollout", "status", "daemonset/podshim-metrics", "--timeout=120s"];
    cluster.kubectl(&rollout).await?;

    let workload = Workload::pod(with_proxy("measured")).on_node(1).run(&cluster).await?;
    workload.wait_ready(1, SOON).await?;
    let gauge = |container: &str, role: &str| {
        let pod = workload.name();
        format!(
            "podshim_container_state{{namespace=\"default\",pod=\"{pod}\",container=\"{container}\",role=\"{role}\",\
             state=\"running\"}} 1\n"
        )
    };
    let answer = scrape(&cluster, &node).await?;
    ensure!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    for gauge in [gauge("proxy", "sidecar"), gauge("app", "main")] {
        ensure!(answer.contains(&gauge), "no {gauge} in {answer}");
    }
    workload.delete(SOON).await?;
    wait::until_seen_every(seconds(1), "the gauge to go", SOON, async || {
        let answer = scrape(&cluster, &node).await?;
        Ok((!answer.contains(&gauge("app", "main"))).then_some(()))
    })
    .await?;
    cluster.kubectl(&["delete", "namespace", NAMESPACE]).await.map(drop)
}
