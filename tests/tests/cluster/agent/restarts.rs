//! A restart in place that is asked for by an annotation (R14).

use anyhow::{Result, ensure};
use e2e::Event::{Exiting, Started, Term};
use e2e::durations::seconds;
use e2e::{Cluster, Manifest, Program, Workload, wait};

use super::{Agents, gated, only_pod};
use crate::support::SOON;

/// R14: each value once, also over a restart of the agent; the condition is False meanwhile; what is refused is an event.
#[tokio::test]
async fn r14_an_annotation_restarts_a_pod_in_place_once() -> Result<()> {
    let cluster = Cluster::connect()?;
    let agents = Agents::install(&cluster).await?;
    let manifest = Manifest::new("asked")
        .annotate("plan", "proxy=sidecar, app=main")
        .annotate("ready.proxy", "tcp::8080;period=100ms;fail=600")
        // That of the template asks for nothing.
        .annotate("restart", "first")
        .container(Program::new("proxy").listens(8080, seconds(2)))
        .container(Program::new("app").term_delay(seconds(2)));
    let workload = gated(Workload::pod(manifest)).on_node(1).run(&cluster).await?;
    let pod = only_pod(&workload).await?;
    agents.wait_condition(&pod.name, "True", "MainsRun").await?;
    let annotate = async |value: &str| {
        let value = format!("podshim.io/restart={value}");
        cluster.kubectl(&["annotate", "--overwrite", "pod", &pod.name, &value]).await
    };
    annotate("second").await?;
    agents.wait_condition(&pod.name, "False", "Restarting").await?;
    agents.wait_condition(&pod.name, "True", "MainsRun").await?;
    let timeline = workload.wait_event(&pod.name, ("app", Started), 2, SOON).await?;
    timeline.in_order(&[("app", Term), ("app", Exiting), ("proxy", Term), ("proxy", Exiting)])?;
    ensure!(timeline.count("proxy", Started) == 2, "{timeline}");
    let asks =
        "the annotation podshim.io/restart asks for a restart of the pod in place (\"second\"): it begins";
    agents
        .wait_story(
            &pod.name,
            &[&format!("Normal .. RestartAsked .. {asks}"), "PodRestarted .. the pod restarts in place"],
        )
        .await?;
    // Another agent sees the same value.
    agents.kill(1).await?;
    agents.roll_out().await?;
    wait::quiet_time(seconds(5)).await;
    let timeline = workload.timeline(&pod.name)?;
    ensure!(timeline.count("app", Started) == 2, "{timeline}");
    let after = only_pod(&workload).await?;
    ensure!(
        after.uid == pod.uid && after.status.containers.iter().all(|one| one.restarts == 0),
        "{after:#?}"
    );

    cluster.kubectl(&["delete", &workload.reference(), "--wait=false"]).await?;
    agents.wait_condition(&pod.name, "False", "Stopping").await?;
    annotate("third").await?;
    agents.wait_reasons(&pod.uid, &["RestartRefused"]).await?;
    workload.wait_no_pods(SOON).await
}
