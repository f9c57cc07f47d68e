//! A node that loses its power: every process is gone at once, and with them every sandbox. These tests run alone.

use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::Event::{Exiting, Starting};
use e2e::durations::seconds;
use e2e::static_pod::RestartPolicy;
use e2e::{Cluster, Footprint, Manifest, Phase, Program, Workload, wait};

use crate::support::{SOON, started_in_order, stopped_in_order, with_proxy};

const NODE: u32 = 2;

/// S7, U2, I5: the same pods come back in their order, with their inits, stop in order later, and leave nothing of
/// either boot on the node.
#[tokio::test]
async fn s7_u2_i5_pods_come_back_in_order() -> Result<()> {
    let cluster = Cluster::connect()?;
    let manifest = Manifest::new("inits")
        .annotate("plan", "proxy=sidecar, fetch=init, app=main")
        .annotate("ready.proxy", "tcp::8080;period=100ms;fail=600")
        .container(Program::new("proxy").listens(8080, seconds(1)))
        .container(Program::new("fetch").runs_for(seconds(1)))
        .container(Program::new("app").term_delay(seconds(2)));
    let inits = Workload::pod(manifest).on_node(NODE).run(&cluster).await?;
    let deployment = Workload::deployment(with_proxy("rebooted"), 2).on_node(NODE).run(&cluster).await?;
    let before = deployment.wait_ready(2, SOON).await?;
    inits.wait_event(inits.name(), ("app", Starting), 1, SOON).await?;

    let names: Vec<_> = before.iter().map(|pod| pod.name.as_str()).chain([inits.name()]).collect();
    let old = on_the_node(&cluster, &names).await?;
    cluster.power_off(NODE).await?;
    for pod in &before {
        // A power cut gives nothing the time to end.
        let timeline = deployment.timeline(&pod.name)?;
        ensure!(timeline.count("app", Exiting) == 0 && timeline.count("proxy", Exiting) == 0, "{timeline}");
        deployment.forget(&pod.name)?;
    }
    inits.forget(inits.name())?;
    cluster.power_on(NODE).await?;

    for pod in &before {
        started_in_order(&deployment.wait_event(&pod.name, ("app", e2e::Event::Started), 1, SOON).await?)?;
    }
    let timeline = inits.wait_event(inits.name(), ("app", Starting), 1, SOON).await?;
    timeline.in_order(&[("proxy", Starting), ("fetch", Starting), ("fetch", Exiting), ("app", Starting)])?;
    let after = deployment
        .wait_pods("the pods to be ready again", SOON, |pods| {
            pods.iter().all(|pod| pod.ready && pod.status.containers.iter().all(|one| one.restarts == 1))
        })
        .await?;
    let uids = |pods: &[e2e::ClusterPod]| pods.iter().map(|pod| pod.uid.clone()).collect::<Vec<_>>();
    ensure!(uids(&before) == uids(&after), "{before:#?}\n{after:#?}");
    let new = on_the_node(&cluster, &names).await?;
    deployment.delete(SOON).await?;
    for pod in &after {
        stopped_in_order(&deployment.timeline(&pod.name)?)?;
    }
    inits.delete(SOON).await?;
    stopped_in_order(&inits.timeline(inits.name())?)?;

    ensure!(!old.is_empty() && old.iter().all(|id| new.contains(id)), "{old:?}\n{new:?}");
    // The kubelet collects what has ended once a minute, containers first.
    wait::until_seen_every(seconds(1), "the node to be clean", COLLECTION, async || {
        Ok(on_the_node(&cluster, &names).await?.is_empty().then_some(()))
    })
    .await?;
    // With either shim containerd has a working directory for each task, removes those of the boot before at its start,
    // and looks for them only where it finds tasks (1.6, loadExistingTasks): not at the first start after the power cut.
    let node = cluster.node(NODE)?;
    node.kill().await?;
    node.start_again().await?;
    let ids: Vec<_> = new.iter().map(String::as_str).collect();
    Footprint::of_containers(&ids).wait_gone(&node, seconds(10)).await
}

/// How long the kubelet may take to remove what has ended.
const COLLECTION: Duration = seconds(240);

/// The ids of the sandboxes and containers that the node's containerd has of these pods.
async fn on_the_node(cluster: &Cluster, pods: &[&str]) -> Result<Vec<String>> {
    let cri = cluster.node(NODE)?.cri()?;
    let mut ids = Vec::new();
    for sandbox in cri.list_pod_sandboxes().await? {
        if sandbox.metadata.as_ref().is_some_and(|metadata| pods.contains(&metadata.name.as_str())) {
            ids.extend(cri.list_containers(&sandbox.id).await?.into_iter().map(|container| container.id));
            ids.push(sandbox.id);
        }
    }
    Ok(ids)
}

/// J1, J2: a Job's pod that had succeeded stays so, and one that was running fails; the Job's next pod completes it.
#[tokio::test]
async fn j1_j2_jobs_go_on() -> Result<()> {
    let cluster = Cluster::connect()?;
    let job = |name: &str, main: Program| {
        let manifest = Manifest::new(name)
            .policy(RestartPolicy::Never)
            .annotate("plan", "proxy=sidecar, job=main")
            .container(Program::new("proxy"))
            .container(main);
        Workload::job(manifest).on_node(NODE)
    };
    let done = job("done", Program::new("job").runs_for(seconds(1))).run(&cluster).await?;
    done.wait_condition("Complete", SOON).await?;
    let cut = job("cut", Program::new("job").runs_for(seconds(40))).run(&cluster).await?;
    let first = cut.wait_ready(1, SOON).await?.remove(0);

    cluster.power_off(NODE).await?;
    cluster.power_on(NODE).await?;
    cut.wait_condition("Complete", SOON).await?;
    let pods = cut.pods().await?;
    let old = pods.iter().find(|pod| pod.uid == first.uid);
    ensure!(old.is_none_or(|pod| pod.status.phase == Phase::Failed), "{pods:#?}");
    ensure!(cut.timeline(&first.name)?.count("job", Starting) == 1, "the job ran again in its old pod");
    let pods = done.pods().await?;
    ensure!(pods.len() == 1 && pods[0].status.phase == Phase::Succeeded, "{pods:#?}");
    ensure!(done.timeline(&pods[0].name)?.count("job", Starting) == 1, "the job ran again");
    Ok(())
}
