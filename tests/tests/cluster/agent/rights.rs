//! What an agent may, and for which pods it does not speak.

use anyhow::{Result, ensure};
use e2e::durations::seconds;
use e2e::{Cluster, Pod, Program, Runtime, Workload, wait};

use super::{Agents, gated, held_by_file, only_pod};
use crate::support::SOON;

/// The rights of its account, which are those of dist/kubernetes/agent and no more.
#[tokio::test]
async fn an_agents_account_may_little() -> Result<()> {
    let cluster = Cluster::connect()?;
    let _agents = Agents::install(&cluster).await?;
    let account = "--as=system:serviceaccount:podshim-agent:podshim-agent";
    for (verb, what, allowed) in [
        ("watch", "pods", true),
        ("patch", "pods/status", true),
        ("create", "events.events.k8s.io", true),
        ("patch", "pods", false),
        ("create", "pods/exec", false),
        ("delete", "pods", false),
        ("update", "pods/status", false),
        ("get", "secrets", false),
        ("get", "nodes", false),
        ("delete", "events.events.k8s.io", false),
    ] {
        let (what, part) = what.split_once('/').unwrap_or((what, ""));
        let part = format!("--subresource={part}");
        let may = cluster.kubectl(&["auth", "can-i", verb, what, &part, account]).await;
        ensure!(may.is_ok() == allowed, "{verb} {what} {part}: {may:?}");
    }
    Ok(())
}

/// A sandbox on node 1 that says it is a pod of node 2. Its mains run; those of the real pod are held.
#[tokio::test]
async fn a_sandbox_that_claims_to_be_a_pod_of_another_node_is_not_spoken_for() -> Result<()> {
    let cluster = Cluster::connect()?;
    let agents = Agents::install(&cluster).await?;
    let manifest = held_by_file("claimed").container(Program::new("proxy")).container(Program::new("app"));
    let workload = gated(Workload::pod(manifest)).on_node(2).run(&cluster).await?;
    let pod = only_pod(&workload).await?;
    let before = agents.wait_condition(&pod.name, "False", "Held").await?;
    let node = cluster.node(1)?;
    let claim = Pod::new("claims").claims("default", &pod.name, &pod.uid);
    let claim = claim.annotate("plan", "app=main").container(Program::new("app"));
    let mut claim = claim.run(&node, Runtime::Podshim).await?;
    // Its kubelet, which knows no such pod, ends it within seconds: enough for an agent, which needs less than one.
    let _ = claim.start_all(&["app"]).await;
    wait::quiet_time(seconds(5)).await;
    let after = agents.wait_condition(&pod.name, "False", "Held").await?;
    ensure!(before == after, "{before} {after}");
    let events = agents.events(&pod.uid).await?;
    ensure!(events.iter().all(|(reason, ..)| reason == "Held"), "{events:#?}");
    drop(claim);
    workload.delete(SOON).await
}
