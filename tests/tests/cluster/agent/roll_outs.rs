//! The condition podshim.io/Started as a readinessGate: who is Ready, and what a roll-out does.

use anyhow::{Result, ensure};
use e2e::durations::seconds;
use e2e::{Cluster, Manifest, Program, RunningWorkload, Workload, wait};
use serde_json::json;

use super::{Agents, condition, gated, held_by_file, only_pod, open};
use crate::support::SOON;

/// U9: with the gate a pod is Ready when its mains run and not before, whatever its kubelet thinks of a held one.
#[tokio::test]
async fn u9_a_held_pod_is_not_ready_with_the_gate() -> Result<()> {
    let cluster = Cluster::connect()?;
    let agents = Agents::install(&cluster).await?;
    let manifest = held_by_file("gated")
        .container(Program::new("proxy"))
        .container(Program::new("app").term_delay(seconds(4)));
    let workload = gated(Workload::pod(manifest)).run(&cluster).await?;
    let pod = only_pod(&workload).await?;
    let held = agents.wait_condition(&pod.name, "False", "Held").await?;
    ensure!(held["message"] == "main \"app\" is held, waiting for sidecar \"proxy\"", "{held}");
    let object = workload.object().await?;
    let ready = |kind: &str| {
        let mut all = object["status"]["conditions"].as_array().into_iter().flatten();
        all.find(|one| one["type"] == kind).map(|one| one["status"].clone())
    };
    ensure!(
        ready("ContainersReady") == Some(json!("True")) && ready("Ready") == Some(json!("False")),
        "{object}"
    );
    open(&cluster, &pod.name).await?;
    agents.wait_condition(&pod.name, "True", "MainsRun").await?;
    workload.wait_ready(1, SOON).await?;
    cluster.kubectl(&["delete", &workload.reference(), "--wait=false"]).await?;
    agents.wait_condition(&pod.name, "False", "Stopping").await?;
    workload.wait_no_pods(SOON).await
}

fn served(name: &str) -> Workload {
    let manifest = Manifest::new(name)
        .annotate("plan", "proxy=sidecar, app=main")
        .annotate("ready.proxy", "tcp::8080;period=100ms;fail=6000")
        .container(Program::new("proxy").listens(8080, seconds(0)))
        .container(Program::new("app"));
    let strategy = json!({ "rollingUpdate": { "maxUnavailable": 0, "maxSurge": 1 } });
    Workload::deployment(manifest, 2).field("strategy", strategy)
}

/// The proxy of the next version never gets ready.
async fn break_it(deployment: &RunningWorkload<'_>) -> Result<()> {
    let annotations = json!({ "podshim.io/ready.proxy": "tcp::8081;period=100ms;fail=6000" });
    deployment.patch(&json!({ "spec": { "template": { "metadata": { "annotations": annotations } } } })).await
}

/// U9: a roll-out over a sidecar that never gets ready replaces every pod that serves, as its kubelet takes a held main for ready;
/// with the gate it replaces none.
#[tokio::test]
async fn u9_a_roll_out_waits_with_the_gate_and_does_not_without_it() -> Result<()> {
    let cluster = Cluster::connect()?;
    let _agents = Agents::install(&cluster).await?;
    let with = gated(served("with-gate")).run(&cluster).await?;
    let without = served("without-gate").run(&cluster).await?;
    let (old, replaced) = (with.wait_ready(2, SOON).await?, without.wait_ready(2, SOON).await?);
    break_it(&with).await?;
    break_it(&without).await?;
    without
        .wait_pods("all of its pods to be replaced", SOON, |pods| {
            !pods.is_empty() && pods.iter().all(|pod| replaced.iter().all(|old| old.uid != pod.uid))
        })
        .await?;
    let new =
        |pods: &[e2e::ClusterPod]| pods.iter().filter(|pod| old.iter().all(|old| old.uid != pod.uid)).count();
    let pods = with.wait_pods("one new pod", SOON, |pods| new(pods) == 1 && pods.len() == 3).await?;
    // As long as the other one's roll-out takes, and more.
    wait::quiet_time(seconds(20)).await;
    let after = with.pods().await?;
    let serves = |uid: &str| after.iter().any(|pod| pod.uid == uid && pod.ready && !pod.leaving);
    ensure!(old.iter().all(|pod| serves(&pod.uid)) && after.len() == 3, "{pods:#?}\n{after:#?}");
    for pod in after.iter().filter(|pod| old.iter().all(|old| old.uid != pod.uid)) {
        let shown = condition(&cluster.get(&["pod", &pod.name]).await?);
        ensure!(!pod.ready && shown["reason"] == "Held", "{shown}");
    }
    with.delete(SOON).await?;
    without.delete(SOON).await
}

/// docs/agent.md, Remove: the gates first, then the agent. Without it a pod with the gate is not Ready, and gets so when there is one.
#[tokio::test]
async fn u9_the_agent_is_removed_after_the_gates() -> Result<()> {
    let cluster = Cluster::connect()?;
    let agents = Agents::install(&cluster).await?;
    let deployment = gated(served("removed")).run(&cluster).await?;
    deployment.wait_ready(2, SOON).await?;
    let without = json!({ "spec": { "template": { "spec": { "readinessGates": null } } } });
    deployment.patch(&without).await?;
    cluster.kubectl(&["rollout", "status", &deployment.reference(), "--timeout=120s"]).await?;
    deployment.wait_ready(2, SOON).await?;
    agents.remove().await?;
    let after = deployment.wait_ready(2, SOON).await?;

    let manifest = Manifest::new("ungoverned").annotate("plan", "app=main").container(Program::new("app"));
    let late = gated(Workload::pod(manifest)).run(&cluster).await?;
    let pod = only_pod(&late).await?;
    wait::quiet_time(seconds(5)).await;
    let pods = late.pods().await?;
    ensure!(pods.len() == 1 && !pods[0].ready, "{pods:#?}");
    ensure!(condition(&late.object().await?).is_null(), "{}", late.object().await?);
    let agents = Agents::install(&cluster).await?;
    agents.wait_condition(&pod.name, "True", "MainsRun").await?;
    late.wait_ready(1, SOON).await?;
    let now = deployment.wait_ready(2, SOON).await?;
    ensure!(now.iter().all(|pod| after.iter().any(|old| old.uid == pod.uid)), "{after:#?}\n{now:#?}");
    late.delete(SOON).await?;
    deployment.delete(SOON).await
}
