//! What a user does to a pod with kubectl: the README's first pod, exec, logs.

use anyhow::{Result, ensure};
use e2e::{Cluster, Runtime, Timeline, Workload};

use crate::support::{SOON, started_in_order, stopped_in_order, with_proxy};

/// U2, T1: the pod of the README and of docs/cluster.md starts and stops in order, as its own logs show.
#[tokio::test]
async fn u2_t1_the_first_pod() -> Result<()> {
    let cluster = Cluster::connect()?;
    let mut pod =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../hack/cluster.d/shop.yaml"))?;
    if cluster.default_runtime()? == Runtime::Podshim {
        let class = "  runtimeClassName: podshim\n";
        ensure!(pod.contains(class), "{pod}");
        pod = pod.replace(class, "");
    }
    let file = cluster.directory().join("shop.yaml");
    std::fs::write(&file, pod)?;
    cluster.kubectl(&["apply", "--filename", &file.to_string_lossy()]).await?;
    cluster.kubectl(&["wait", "--for=condition=Ready", "pod/shop", "--timeout=120s"]).await?;
    let follow = async |container| cluster.kubectl(&["logs", "--follow", "shop", container]).await;
    let stop = async || {
        // The pod is Ready while the app is held.
        e2e::wait::until_seen_every(e2e::durations::seconds(1), "the app to start", SOON, async || {
            Ok(cluster.kubectl(&["logs", "shop", "app"]).await?.contains(" Started ").then_some(()))
        })
        .await?;
        cluster.kubectl(&["delete", "pod/shop"]).await
    };
    let (app, proxy, stopped) = tokio::join!(follow("app"), follow("proxy"), stop());
    stopped?;
    // Not the events of a program: podshim's line in the log of a held app, and the answer of a kubelet whose container
    // is gone while it follows the log.
    let mut events: Vec<_> = [app?, proxy?].join("\n").lines().map(str::to_owned).collect();
    events.retain(|line| line.starts_with(|first: char| first.is_ascii_digit()));
    // By time alone: within a millisecond a container's own lines stay as they are.
    events.sort_by_key(|line| line.split(' ').next().map(str::to_owned));
    let timeline = Timeline::parse(&events.join("\n"))?;
    started_in_order(&timeline)?;
    stopped_in_order(&timeline)
}

/// A command runs in a container of a pod, and its exit code comes back; both containers' output is kept.
#[tokio::test]
async fn exec_and_logs() -> Result<()> {
    let cluster = Cluster::connect()?;
    let workload = Workload::pod(with_proxy("asked")).run(&cluster).await?;
    workload.wait_ready(1, SOON).await?;
    let exec = ["exec", workload.name(), "--container=app", "--"];
    let printed = cluster.kubectl(&[&exec[..], &["echo", "hello"]].concat()).await?;
    ensure!(printed == "hello\n", "{printed:?}");
    let failed = cluster.kubectl(&[&exec[..], &["sh", "-c", "exit 7"]].concat()).await;
    let error = format!("{:#}", failed.err().unwrap_or_else(|| anyhow::anyhow!("it succeeded")));
    ensure!(error.contains("exit code 7"), "{error}");
    for container in ["proxy", "app"] {
        let log = cluster.kubectl(&["logs", workload.name(), container]).await?;
        ensure!(log.contains(&format!(" {container} Starting ")), "{log}");
    }
    workload.delete(SOON).await
}
