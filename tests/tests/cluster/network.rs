//! What reaches a pod's network through its sandbox, or finds it by that: a forwarded port, cAdvisor.

use std::fs::File;
use std::io::Read as _;
use std::net::{SocketAddr, TcpStream};

use anyhow::{Context, Result, ensure};
use e2e::durations::{pace, seconds};
use e2e::instance::in_network_namespace;
use e2e::{Cluster, Manifest, Program, Workload, wait};
use serde_json::Value;

use crate::support::{SOON, with_proxy};

/// A port of a pod is forwarded: the kubelet asks containerd, which enters the sandbox's network.
#[tokio::test]
async fn a_port_is_forwarded() -> Result<()> {
    let cluster = Cluster::connect()?;
    let server = "while :; do echo hello | nc -l -p 9000; done &";
    let pod = Manifest::new("forwarded").container(Program::new("app").begins_with_script(server));
    let pod = Workload::pod(pod).run(&cluster).await?;
    pod.wait_ready(1, SOON).await?;

    let forward = ["port-forward", &*pod.reference(), "19000:9000"];
    let ask = || async {
        // kubectl listens in the network of the control plane.
        let network = File::open(format!("/proc/{}/ns/net", cluster.pid("kube-apiserver")?))?;
        let asked = in_network_namespace(network, || {
            let port = SocketAddr::from(([127, 0, 0, 1], 19000));
            let mut connection = TcpStream::connect_timeout(&port, seconds(1))?;
            connection.set_read_timeout(Some(seconds(5)))?;
            let mut answer = String::new();
            connection.read_to_string(&mut answer)?;
            Ok(answer)
        });
        Ok(asked.await.ok().filter(|answer| !answer.is_empty()))
    };
    let (answer, forwarded) = tokio::join!(
        wait::until_seen_every(seconds(1), "the forwarded port to answer", seconds(18), ask),
        cluster.kubectl_for(seconds(20) * pace(), &forward)
    );
    // timeout's own exit code is an error too, with what kubectl printed.
    let answer = answer.with_context(|| format!("{:?}", forwarded.err()))?;
    ensure!(answer == "hello\n", "{answer:?}");
    pod.delete(SOON).await
}

/// cAdvisor finds a pod's network by the label and the pid of its sandbox, and the kubelet's summary has it from there.
#[tokio::test]
async fn the_kubelets_summary_has_a_pods_network() -> Result<()> {
    let cluster = Cluster::connect()?;
    let pod = Workload::pod(with_proxy("summed-up")).on_node(1).run(&cluster).await?;
    pod.wait_ready(1, SOON).await?;
    let summary = ["get", "--raw", "/api/v1/nodes/node-1/proxy/stats/summary"];
    wait::until_seen_every(seconds(2), "the pod's network", SOON, async || {
        let summary: Value = serde_json::from_str(&cluster.kubectl(&summary).await?)?;
        let pods = summary["pods"].as_array().context("no pods")?;
        let found = pods.iter().find(|one| one["podRef"]["name"] == pod.name());
        let received = found.and_then(|pod| pod["network"]["rxBytes"].as_u64());
        // What the kernel of a new network receives by itself; the gate's probe is on the loopback device, which does not count.
        Ok(received.filter(|bytes| *bytes > 0).map(drop))
    })
    .await?;
    pod.delete(SOON).await
}
