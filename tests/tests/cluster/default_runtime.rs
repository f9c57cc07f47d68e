//! The cluster's default runtime: pods that name no RuntimeClass run on it, the cluster's own system pods too.

use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result, ensure};
use e2e::durations::{milliseconds, seconds};
use e2e::{Cluster, ClusterPod, Runtime, Workload, wait};

use crate::support::{SOON, with_proxy};

/// The pods of the tests are on the shim that each of them is to show: with a class on another runtime than the default,
/// without one on the default.
#[tokio::test]
async fn a_pod_runs_on_the_shim_that_it_shows() -> Result<()> {
    let cluster = Cluster::connect()?;
    for (name, runtime) in [("on-podshim", Runtime::Podshim), ("on-runc", Runtime::Runc)] {
        let workload = Workload::pod(with_proxy(name)).on(runtime).run(&cluster).await?;
        let pods = workload.wait_ready(1, SOON).await?;
        let class = workload.object().await?["spec"]["runtimeClassName"].take();
        ensure!(class.is_null() == (runtime == cluster.default_runtime()?), "{name}: {class}");
        let shim = pods[0].shim(&cluster).await?;
        ensure!(shim == runtime, "{name} runs on {shim:?}");
        workload.delete(SOON).await?;
    }
    Ok(())
}

/// kube-proxy is a pod of each node, of no class and so on the default runtime, and serves the API server's Service there.
#[tokio::test]
async fn the_clusters_own_pods_run_on_the_default() -> Result<()> {
    let cluster = Cluster::connect()?;
    let rollout = ["--namespace=kube-system", "rollout", "status", "daemonset/kube-proxy", "--timeout=60s"];
    cluster.kubectl(&rollout).await?;
    let pods = cluster.get(&["pods", "--namespace=kube-system", "--selector=app=kube-proxy"]).await?;
    let pods = pods["items"].as_array().context("no list")?;
    let mut nodes = Vec::new();
    for object in pods {
        let pod = ClusterPod::parse(object)?;
        ensure!(object["spec"]["runtimeClassName"].is_null() && pod.ready, "{object:#}");
        ensure!(pod.shim(&cluster).await? == cluster.default_runtime()?, "{pod:#?}");
        nodes.push(pod.node);
    }
    nodes.sort_unstable();
    ensure!(nodes == ["node-1", "node-2"], "{nodes:?}");

    let service = cluster.get(&["service", "kubernetes"]).await?;
    let address = service["spec"]["clusterIP"].as_str().context("no address")?;
    let address = SocketAddr::new(address.parse()?, 443);
    for number in [1, 2] {
        let node = cluster.node(number)?;
        let connect = move || Ok(TcpStream::connect_timeout(&address, milliseconds(500)).ok().map(drop));
        let served = async || node.in_network(connect).await;
        wait::until_seen_every(milliseconds(300), "the Service to answer", seconds(20), served).await?;
    }
    Ok(())
}
