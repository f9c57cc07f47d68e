//! Deployments: their pods' order, their scale, and roll-outs that keep serving.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use e2e::Event::{Exiting, Term};
use e2e::durations::{milliseconds, seconds};
use e2e::{Cluster, Program, Runtime, Workload};
use serde_json::json;

use crate::support::{SOON, WARM_UP, started_in_order, stopped_in_order, with_gate, with_proxy};

/// U2, T1: each pod of a Deployment starts and stops in order; a smaller scale stops pods as a deletion does.
#[tokio::test]
async fn u2_t1_a_deployment_is_scaled() -> Result<()> {
    let cluster = Cluster::connect()?;
    let deployment = Workload::deployment(with_proxy("scaled"), 3).run(&cluster).await?;
    let pods = deployment.wait_ready(3, SOON).await?;
    for pod in &pods {
        started_in_order(&deployment.timeline(&pod.name)?)?;
    }
    cluster.kubectl(&["scale", "--replicas=1", &deployment.reference()]).await?;
    let left = deployment.wait_ready(1, SOON).await?;
    deployment.delete(SOON).await?;
    for pod in pods {
        stopped_in_order(&deployment.timeline(&pod.name)?).context(format!("left: {left:#?}"))?;
    }
    Ok(())
}

/// T1 with containerd's own shim: what the test above would find there.
#[tokio::test]
async fn t1_a_deployment_on_runc_has_no_order() -> Result<()> {
    let cluster = Cluster::connect()?;
    let deployment = Workload::deployment(with_proxy("no-order"), 1).on(Runtime::Runc).run(&cluster).await?;
    let pods = deployment.wait_ready(1, SOON).await?;
    deployment.delete(SOON).await?;
    let timeline = deployment.timeline(&pods[0].name)?;
    ensure!(started_in_order(&timeline).is_err(), "{timeline}");
    timeline.before(("proxy", Exiting), ("app", Exiting))
}

/// U2, T1: clients of a Service reach its pods all through a roll-out. They are served by a proxy, which is there until
/// its app has ended, and the app gives the nodes the time to hear that the pod leaves.
#[tokio::test]
async fn u2_t1_a_roll_out_keeps_serving() -> Result<()> {
    let cluster = Cluster::connect()?;
    let app = Program::new("app").term_delay(seconds(5));
    let manifest = with_gate("rolled")
        .container_with(
            Program::new("proxy").listens(8080, WARM_UP),
            json!({ "readinessProbe": { "tcpSocket": { "port": 8080 }, "periodSeconds": 1 } }),
        )
        .container(app);
    let strategy = json!({ "rollingUpdate": { "maxUnavailable": 0, "maxSurge": 1 } });
    let deployment = Workload::deployment(manifest, 2).field("strategy", strategy).run(&cluster).await?;
    let old = deployment.wait_ready(2, SOON).await?;
    let address = serve(&cluster, deployment.name()).await?;

    let client = Client::begin(&cluster, address);
    deployment
        .patch(&json!({ "spec": { "template": { "metadata": { "labels": { "version": "2" } } } } }))
        .await?;
    let status = ["rollout", "status", &deployment.reference(), "--timeout=180s"];
    cluster.kubectl(&status).await?;
    deployment.wait_ready(2, SOON).await?;
    let served = client.end().await?;
    cluster.kubectl(&["delete", "service", deployment.name()]).await?;

    ensure!(served > 50, "only {served} connections");
    for pod in &old {
        let timeline = deployment.timeline(&pod.name)?;
        timeline.in_order(&[("app", Term), ("app", Exiting), ("proxy", Term)])?;
    }
    for pod in deployment.pods().await? {
        ensure!(old.iter().all(|one| one.uid != pod.uid), "{pod:?} is not new");
        started_in_order(&deployment.timeline(&pod.name)?)?;
    }
    Ok(())
}

/// Makes a Service for the pods of a workload, and returns its address once node 1 serves it.
async fn serve(cluster: &Cluster, name: &str) -> Result<SocketAddr> {
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": { "name": name },
        "spec": { "selector": { "app": name }, "ports": [{ "port": 80, "targetPort": 8080 }] },
    });
    cluster.apply(&service).await?;
    let service = cluster.get(&["service", name]).await?;
    let address = service["spec"]["clusterIP"].as_str().context("no address")?;
    let address = SocketAddr::new(address.parse()?, 80);
    let node = cluster.node(1)?;
    let answers = move || {
        for _ in 0..100 {
            if TcpStream::connect_timeout(&address, CONNECT_LIMIT).is_ok() {
                return Ok(());
            }
            std::thread::sleep(milliseconds(200));
        }
        bail!("the service does not answer")
    };
    node.in_network(answers).await?;
    Ok(address)
}

/// How long a connection may take before it counts as failed: a packet that is lost is sent again after a second.
const CONNECT_LIMIT: Duration = seconds(3);

/// A client on node 1 that connects to a service again and again.
struct Client {
    stop: Arc<AtomicBool>,
    connections: tokio::task::JoinHandle<Result<usize>>,
}

impl Client {
    fn begin(cluster: &Cluster, address: SocketAddr) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let node = cluster.node(1);
        let connect = move || {
            let mut served = 0;
            while !stopped.load(Ordering::Relaxed) {
                TcpStream::connect_timeout(&address, CONNECT_LIMIT)
                    .with_context(|| format!("connection {} to the service", served + 1))?;
                served += 1;
                std::thread::sleep(milliseconds(50));
            }
            Ok(served)
        };
        let connections = tokio::spawn(async move { node?.in_network(connect).await });
        Self { stop, connections }
    }

    /// How many connections there were.
    async fn end(self) -> Result<usize> {
        self.stop.store(true, Ordering::Relaxed);
        self.connections.await?
    }
}
