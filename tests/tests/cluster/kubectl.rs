//! What a user does to a pod with kubectl: exec, logs.

use anyhow::{Result, ensure};
use e2e::{Cluster, Workload};

use crate::support::{SOON, with_proxy};

/// A command runs in a container of a pod, and its exit code comes back; both containers' output is kept.
#[tokio::test]
async fn exec_and_logs() -> Result<()> {
    let cluster = Cluster::connect()?;
    let workload = Workload::pod(with_proxy("asked")).run(&cluster).await?;
    workload.wait_ready(1, SOON).await?;
    let exec = ["exec", workload.name(), "--container=app", "--"];
    let said = cluster.kubectl(&[&exec[..], &["echo", "hello"]].concat()).await?;
    ensure!(said == "hello\n", "{said:?}");
    let failed = cluster.kubectl(&[&exec[..], &["sh", "-c", "exit 7"]].concat()).await;
    let error = format!("{:#}", failed.err().unwrap_or_else(|| anyhow::anyhow!("it succeeded")));
    ensure!(error.contains("exit code 7"), "{error}");
    for container in ["proxy", "app"] {
        let log = cluster.kubectl(&["logs", workload.name(), container]).await?;
        ensure!(log.contains(&format!(" {container} Starting ")), "{log}");
    }
    workload.delete(SOON).await
}
