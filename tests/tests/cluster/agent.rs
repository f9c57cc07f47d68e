//! podshim's agent on a cluster: `dist/kubernetes/agent` with an image of the nodes, under its own rights, and what people see by kubectl.
//!
//! Its tests run one after another, as they share the agents. The last one leaves the agent on the cluster.

mod away;
mod plugin;
mod restarts;
mod rights;
mod roll_outs;
mod stories;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use anyhow::{Context, Result};
use e2e::durations::seconds;
use e2e::{Cluster, ClusterPod, ContainerState, Manifest, RunningWorkload, Workload, instance, wait};
use serde_json::{Value, json};

use crate::support::{SOON, import};

const NAMESPACE: &str = "podshim-agent";
const GATE: &str = "podshim.io/Started";
/// How often the API server is asked.
const INTERVAL: Duration = seconds(1);

/// The agents of a cluster.
struct Agents<'cluster> {
    cluster: &'cluster Cluster,
}

impl<'cluster> Agents<'cluster> {
    /// Applies the manifests, with the image that `hack/cluster test` has made, and waits for an agent on each node.
    async fn install(cluster: &'cluster Cluster) -> Result<Self> {
        let image = cluster.directory().join("podshim-agent.tar");
        for node in [1, 2] {
            import(&cluster.node(node)?, &image).await?;
        }
        cluster.kubectl(&["apply", "--kustomize", &manifests(cluster)]).await?;
        // The same image replaces no agent, and another one of the same name does.
        let mut hash = DefaultHasher::new();
        std::fs::read(&image)?.hash(&mut hash);
        let annotations = json!({ "podshim.test/image": hash.finish().to_string() });
        let patch = json!({ "spec": { "template": { "metadata": { "annotations": annotations } } } });
        let words = ["--namespace", NAMESPACE, "patch", "daemonset", "podshim-agent", "--patch"];
        cluster.kubectl(&[&words[..], &[&patch.to_string()]].concat()).await?;
        let agents = Self { cluster };
        agents.roll_out().await?;
        Ok(agents)
    }

    /// Takes all of it from the cluster, and returns when it is gone.
    async fn remove(self) -> Result<()> {
        self.cluster.kubectl(&["delete", "--kustomize", &manifests(self.cluster)]).await.map(drop)
    }

    async fn roll_out(&self) -> Result<()> {
        let words =
            ["--namespace", NAMESPACE, "rollout", "status", "daemonset/podshim-agent", "--timeout=120s"];
        self.cluster.kubectl(&words).await.map(drop)
    }

    /// The agent of a node: its pod's name and its pid.
    async fn of_node(&self, node: u32) -> Result<(String, libc::pid_t)> {
        let field = format!("spec.nodeName=node-{node}");
        let list = self.cluster.get(&["--namespace", NAMESPACE, "pods", "--field-selector", &field]).await?;
        let mut pods = list["items"].as_array().into_iter().flatten();
        let lives = |pod: &&Value| pod["metadata"]["deletionTimestamp"].is_null();
        let pod = pods.find(lives).context("no agent on the node")?;
        let pid = self.cluster.node(node)?.cri()?.container_pid(&container_id(pod, "agent")?).await?;
        Ok((pod["metadata"]["name"].as_str().context("no name")?.to_owned(), pid))
    }

    /// Kills the agent of a node with SIGKILL. The DaemonSet starts another one at once, without the kubelet's delay.
    async fn kill(&self, node: u32) -> Result<()> {
        let (name, pid) = self.of_node(node).await?;
        instance::signal(pid, libc::SIGKILL)?;
        self.cluster.kubectl(&["--namespace", NAMESPACE, "delete", "pod", &name, "--grace-period=1"]).await?;
        Ok(())
    }

    /// Waits until `kubectl describe` has lines with these words, in any order.
    async fn wait_story(&self, pod: &str, words: &[&str]) -> Result<String> {
        let mut last = String::new();
        let seen = wait::until_seen_every(INTERVAL, &format!("the story of {pod}"), SOON, async || {
            last = self.cluster.kubectl(&["describe", "pod", pod]).await?;
            Ok(words.iter().all(|words| has_line(&last, words)).then_some(()))
        })
        .await;
        seen.with_context(|| format!("{words:#?}\n{last}"))?;
        Ok(last)
    }

    /// Waits until the condition of a pod is that one.
    async fn wait_condition(&self, pod: &str, status: &str, reason: &str) -> Result<Value> {
        let mut last = Value::Null;
        let seen = wait::until_seen_every(INTERVAL, &format!("{reason} of {pod}"), SOON, async || {
            last = condition(&self.cluster.get(&["pod", pod]).await?);
            Ok((last["status"] == status && last["reason"] == reason).then_some(()))
        })
        .await;
        seen.with_context(|| last.to_string())?;
        Ok(last)
    }

    /// The agent's events about a pod: reason, note and count.
    async fn events(&self, uid: &str) -> Result<Vec<(String, String, u64)>> {
        let field = format!("involvedObject.uid={uid}");
        let list = self.cluster.get(&["events", "--field-selector", &field]).await?;
        let own = |event: &&Value| event["reportingComponent"] == "podshim.io/agent";
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let all = list["items"].as_array().into_iter().flatten().filter(own);
        Ok(all
            .map(|event| {
                (
                    text(&event["reason"]),
                    text(&event["message"]),
                    event["series"]["count"].as_u64().unwrap_or(1),
                )
            })
            .collect())
    }

    /// Waits until the agents' events about a pod have these reasons, and returns all.
    async fn wait_reasons(&self, uid: &str, reasons: &[&str]) -> Result<Vec<(String, String, u64)>> {
        let mut last = Vec::new();
        let seen = wait::until_seen_every(INTERVAL, &format!("events {reasons:?}"), SOON, async || {
            last = self.events(uid).await?;
            Ok(reasons.iter().all(|reason| last.iter().any(|(own, ..)| own == reason)).then_some(()))
        })
        .await;
        seen.with_context(|| format!("{last:#?}"))?;
        Ok(last)
    }
}

/// The kustomization that `hack/cluster test` has made.
fn manifests(cluster: &Cluster) -> String {
    cluster.directory().join("agent").to_string_lossy().into_owned()
}

/// Whether a line has these words one after the other, with anything between them.
fn has_line(text: &str, words: &str) -> bool {
    text.lines().any(|line| {
        let mut rest = line;
        words.split(" .. ").all(|word| {
            let found = rest.split_once(word);
            rest = found.map_or("", |(_, rest)| rest);
            found.is_some()
        })
    })
}

/// The id of a container of a pod's object.
fn container_id(pod: &Value, name: &str) -> Result<String> {
    let mut all = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
    let own = all.find(|container| container["name"] == name).context("no such container")?;
    let id = own["containerID"].as_str().unwrap_or_default();
    Ok(id.trim_start_matches("containerd://").to_owned())
}

/// The agent's condition of a pod's object.
fn condition(pod: &Value) -> Value {
    let mut all = pod["status"]["conditions"].as_array().into_iter().flatten();
    all.find(|condition| condition["type"] == GATE).cloned().unwrap_or_default()
}

/// Waits for the condition.
fn gated(workload: Workload) -> Workload {
    workload.pod_field("readinessGates", json!([{ "conditionType": GATE }]))
}

/// Opens when a file is there, in a volume that the pod's containers share.
fn held_by_file(name: &str) -> Manifest {
    Manifest::new(name)
        .annotate("plan", "proxy=sidecar, app=main")
        .annotate("ready.proxy", "file:/tmp/open;period=100ms;fail=6000")
}

/// Opens that gate.
async fn open(cluster: &Cluster, pod: &str) -> Result<()> {
    cluster.kubectl(&["exec", pod, "--container=proxy", "--", "touch", "/tmp/open"]).await.map(drop)
}

/// The only pod of a workload, when all its containers run: for the kubelet a held one does.
async fn only_pod(workload: &RunningWorkload<'_>) -> Result<ClusterPod> {
    let runs = |pods: &[ClusterPod]| {
        let [pod] = pods else { return false };
        !pod.status.containers.is_empty()
            && pod.status.containers.iter().all(|one| matches!(one.state, ContainerState::Running))
    };
    let pods = workload.wait_pods("its containers to run", SOON, runs).await?;
    pods.into_iter().next().context("no pod")
}
