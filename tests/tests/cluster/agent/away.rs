//! What is away, killed or there twice: the API server and the agents themselves. Kubernetes shows what is so afterwards.

use anyhow::{Result, ensure};
use e2e::durations::seconds;
use e2e::{Cluster, Program, Workload, wait};
use serde_json::json;

use super::{Agents, condition, container_id, gated, held_by_file, only_pod, open};
use crate::support::SOON;

fn held(name: &str) -> Workload {
    let manifest = held_by_file(name)
        .container(Program::new("proxy"))
        .container(Program::new("app").term_delay(seconds(8)));
    gated(Workload::pod(manifest)).on_node(1)
}

/// Its pod's gate opens while no API server answers, and that of another one does not.
#[tokio::test]
async fn an_api_server_that_was_away_for_a_minute_shows_what_is_so() -> Result<()> {
    let cluster = Cluster::connect()?;
    let agents = Agents::install(&cluster).await?;
    let (opened, stays) = (held("away-opened").run(&cluster).await?, held("away-held").run(&cluster).await?);
    let (one, two) = (only_pod(&opened).await?, only_pod(&stays).await?);
    for pod in [&one, &two] {
        agents.wait_condition(&pod.name, "False", "Held").await?;
        agents.wait_story(&pod.name, &["Held .. is held for 10s"]).await?;
    }
    let (_, pid) = agents.of_node(1).await?;
    let before = cluster.get(&["pod", &two.name]).await?;
    // No exec without an API server.
    let id = container_id(&cluster.get(&["pod", &one.name]).await?, "proxy")?;
    let node = cluster.node(1)?;
    cluster.kill("kube-apiserver").await?;
    node.cri()?.exec_sync(&id, &["touch", "/tmp/open"], seconds(10)).await?;
    opened.wait_event(&one.name, ("app", e2e::Event::Started), 1, SOON).await?;
    wait::quiet_time(seconds(60)).await;
    cluster.up_again().await?;
    agents.wait_condition(&one.name, "True", "MainsRun").await?;
    let still = agents.wait_condition(&two.name, "False", "Held").await?;
    ensure!(still["lastTransitionTime"] == condition(&before)["lastTransitionTime"], "{still} {before}");
    agents.wait_story(&two.name, &["Held .. is held for 1m"]).await?;
    let notes = agents.events(&one.uid).await?;
    ensure!(notes.iter().all(|(_, note, _)| !note.contains("held for 1m")), "{notes:#?}");
    ensure!(agents.of_node(1).await?.1 == pid, "the agent did not go on");
    opened.delete(SOON).await?;
    stays.delete(SOON).await
}

/// Killed with SIGKILL before a pod's start, while it is held, when it starts and while it stops: afterwards no condition is wrong.
#[tokio::test]
async fn an_agent_that_is_killed_leaves_no_wrong_condition() -> Result<()> {
    let cluster = Cluster::connect()?;
    let agents = Agents::install(&cluster).await?;
    agents.kill(1).await?;
    let workload = held("killed").run(&cluster).await?;
    let pod = only_pod(&workload).await?;
    agents.wait_condition(&pod.name, "False", "Held").await?;
    agents.kill(1).await?;
    open(&cluster, &pod.name).await?;
    agents.wait_condition(&pod.name, "True", "MainsRun").await?;
    let started = cluster.get(&["pod", &pod.name]).await?;
    // All is as it was: an agent that begins writes nothing.
    agents.kill(1).await?;
    agents.roll_out().await?;
    wait::quiet_time(seconds(5)).await;
    ensure!(condition(&cluster.get(&["pod", &pod.name]).await?) == condition(&started), "{started}");
    // At once, and while it is away.
    agents.kill(1).await?;
    cluster.kubectl(&["delete", &workload.reference(), "--wait=false"]).await?;
    agents.kill(1).await.ok();
    agents.wait_condition(&pod.name, "False", "Stopping").await?;
    workload.wait_no_pods(SOON).await
}

/// Two agents on a node, as at a roll-out with a surge: one event each, and a condition that neither writes again.
#[tokio::test]
async fn two_agents_write_what_one_writes() -> Result<()> {
    let cluster = Cluster::connect()?;
    let agents = Agents::install(&cluster).await?;
    let set = cluster.get(&["--namespace", "podshim-agent", "daemonset", "podshim-agent"]).await?;
    let mut spec = set["spec"]["template"]["spec"].clone();
    spec["nodeName"] = json!("node-1");
    let second = json!({ "apiVersion": "v1", "kind": "Pod", "spec": spec,
        "metadata": { "name": "second-agent", "namespace": "podshim-agent" } });
    cluster.apply(&second).await?;
    let namespace = ["--namespace", "podshim-agent"];
    let ready = ["wait", "--for=condition=Ready", "pod/second-agent", "--timeout=60s"];
    cluster.kubectl(&[&namespace[..], &ready].concat()).await?;

    let script = "read n </tmp/run || n=0; echo $((n + 1)) >/tmp/run; [ $n -gt 2 ] || { sleep 1; exit 1; }";
    let manifest = held_by_file("twice")
        .container(Program::new("proxy").begins_with_script(script))
        .container(Program::new("app").term_delay(seconds(5)));
    let workload = gated(Workload::pod(manifest)).on_node(1).run(&cluster).await?;
    let pod = only_pod(&workload).await?;
    agents.wait_story(&pod.name, &["Held .. is held for 10s", "Restarted .. exited with 1"]).await?;
    open(&cluster, &pod.name).await?;
    agents.wait_condition(&pod.name, "True", "MainsRun").await?;
    workload.wait_ready(1, SOON).await?;
    wait::quiet_time(seconds(3)).await;
    let before = cluster.get(&["pod", &pod.name]).await?;
    // Longer than an agent waits until it takes what is shown for another program's.
    wait::quiet_time(seconds(10)).await;
    let after = cluster.get(&["pod", &pod.name]).await?;
    ensure!(
        before["metadata"]["resourceVersion"] == after["metadata"]["resourceVersion"],
        "{before}\n{after}"
    );
    let mut events = agents.events(&pod.uid).await?;
    events.retain(|(reason, ..)| reason == "Restarted" || reason == "Held");
    let count = |reason: &str| events.iter().filter(|(own, ..)| own == reason).count();
    ensure!((count("Held"), count("Restarted")) == (1, 1), "{events:#?}");
    cluster
        .kubectl(&[&namespace[..], &["delete", "pod", "second-agent", "--grace-period=1"]].concat())
        .await?;
    workload.delete(SOON).await
}
