//! `kubectl podshim` (dist/kubectl) with the kubectl of Kubernetes 1.20: from the API server to the agent's pod on the pod's node.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use anyhow::{Result, ensure};
use e2e::Event::Started;
use e2e::durations::seconds;
use e2e::{Cluster, Manifest, Program, Workload, output};

use super::{Agents, only_pod};
use crate::support::SOON;

const PLUGIN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../dist/kubectl/kubectl-podshim");

/// A person without the node: why a pod waits, its containers, its life, a restart, a stop, and what is left of it.
#[tokio::test]
async fn a_pod_is_explained_restarted_and_stopped_without_its_node() -> Result<()> {
    let cluster = Cluster::connect()?;
    let agents = Agents::install(&cluster).await?;
    let person = Person::of(&cluster)?;
    let manifest = Manifest::new("asked-why")
        .annotate("plan", "proxy=sidecar, app=main")
        .annotate("ready.proxy", "file:/tmp/open;period=100ms;fail=6000")
        .container(Program::new("proxy"))
        .container(Program::new("app"));
    let workload = Workload::pod(manifest).on_node(2).run(&cluster).await?;
    let pod = only_pod(&workload).await?;

    let why = person.asks(&["why", &pod.name]).await?;
    ensure!(why.starts_with(&format!("default/{}: \"app\" is held", pod.name)), "{why}");
    ensure!(why.contains("waiting for sidecar \"proxy\""), "{why}");
    let listed = person.asks(&["ps", &pod.name]).await?;
    ensure!(listed.lines().any(|line| line.contains("app") && line.contains("held")), "{listed}");
    cluster.kubectl(&["exec", &pod.name, "--container=proxy", "--", "touch", "/tmp/open"]).await?;
    workload.wait_event(&pod.name, ("app", Started), 1, SOON).await?;

    person.asks(&["restart", &pod.name]).await?;
    workload.wait_event(&pod.name, ("app", Started), 2, SOON).await?;
    let life = person.asks(&["timeline", &pod.name]).await?;
    ensure!(life.contains("the pod restarts: requested"), "{life}");
    // Both nodes are asked for what has no node: one has it.
    let all = person.asks(&["ps", "--all-namespaces"]).await?;
    ensure!(all.contains("node-1:") && all.contains("node-2:") && all.contains(&pod.name), "{all}");
    workload.delete(SOON).await?;
    let past = person.asks(&["history", &pod.name]).await?;
    ensure!(past.contains(&pod.name) && past.contains("stopped"), "{past}");

    let unknown = person.asks(&["why", "no-such-pod"]).await.err().map(|error| format!("{error:#}"));
    ensure!(unknown.as_ref().is_some_and(|text| text.contains("ended with Some(1)")), "{unknown:?}");
    agents.remove().await?;
    let without_agent = person.asks(&["ps"]).await.err().map(|error| format!("{error:#}"));
    ensure!(
        without_agent
            .as_ref()
            .is_some_and(|text| text.contains("ended with Some(3)") && text.contains("no agent runs")),
        "{without_agent:?}"
    );
    Ok(())
}

/// Someone with kubectl, the plugin and nothing else.
struct Person {
    kubectl: PathBuf,
}

impl Person {
    fn of(cluster: &Cluster) -> Result<Self> {
        let kubectl = cluster.directory().join("kubectl-of-a-person");
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../hack/cluster");
        let text = format!("#!/bin/sh\nexec {script} kubectl {} \"$@\"\n", cluster.directory().display());
        fs::write(&kubectl, text)?;
        fs::set_permissions(&kubectl, fs::Permissions::from_mode(0o755))?;
        Ok(Self { kubectl })
    }

    async fn asks(&self, words: &[&str]) -> Result<String> {
        let mut kubectl = OsString::from("KUBECTL=");
        kubectl.push(&self.kubectl);
        let limit = seconds(60).as_secs().to_string();
        let words = words.iter().map(OsString::from);
        let command = [kubectl, "timeout".into(), limit.into(), "sh".into(), PLUGIN.into()];
        output("env", command.into_iter().chain(words)).await
    }
}
