//! What a test runs on a [`Cluster`]: a pod, or what makes pods (Deployment, Job, DaemonSet). The pods' programs record
//! what happens to them, each pod in a log of its own.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

use crate::cri::PodSandboxState;
use crate::program::SHARED_DIRECTORY;
use crate::{Cluster, Footprint, Manifest, PodStatus, Runtime, Timeline, command, wait};

/// How often the API server is asked: each question is a process.
const INTERVAL: Duration = Duration::from_millis(300);

/// A workload to be run, in the namespace `default`. Its pods have the label `app`, which is its name.
#[derive(Clone, Debug)]
pub struct Workload {
    kind: &'static str,
    version: &'static str,
    manifest: Manifest,
    runtime: Runtime,
    fields: Value,
    pod_fields: Value,
}

impl Workload {
    fn new(version: &'static str, kind: &'static str, manifest: Manifest) -> Self {
        let (fields, pod_fields) = (json!({}), json!({}));
        Self { kind, version, manifest, runtime: Runtime::Podshim, fields, pod_fields }
    }

    /// A pod that no controller has made.
    #[must_use]
    pub fn pod(manifest: Manifest) -> Self {
        Self::new("v1", "Pod", manifest)
    }

    /// A Deployment.
    #[must_use]
    pub fn deployment(manifest: Manifest, replicas: u32) -> Self {
        Self::new("apps/v1", "Deployment", manifest).field("replicas", json!(replicas))
    }

    /// A `DaemonSet`.
    #[must_use]
    pub fn daemon_set(manifest: Manifest) -> Self {
        Self::new("apps/v1", "DaemonSet", manifest)
    }

    /// A Job, which is complete when one pod has succeeded.
    #[must_use]
    pub fn job(manifest: Manifest) -> Self {
        Self::new("batch/v1", "Job", manifest)
    }

    /// The shim its pods run with; podshim unless given. They name a `RuntimeClass` only if it is not the cluster's default.
    #[must_use]
    pub fn on(mut self, runtime: Runtime) -> Self {
        self.runtime = runtime;
        self
    }

    /// A field of its `spec`.
    #[must_use]
    pub fn field(mut self, name: &str, value: Value) -> Self {
        self.fields[name] = value;
        self
    }

    /// A field of the `spec` of its pods.
    #[must_use]
    pub fn pod_field(mut self, name: &str, value: Value) -> Self {
        self.pod_fields[name] = value;
        self
    }

    /// Its pods run on that node only.
    #[must_use]
    pub fn on_node(self, number: u32) -> Self {
        self.pod_field("nodeSelector", json!({ "kubernetes.io/hostname": format!("node-{number}") }))
    }

    /// Gives it to the API server.
    ///
    /// # Errors
    /// If that refuses it.
    pub async fn run(self, cluster: &Cluster) -> Result<RunningWorkload<'_>> {
        let name = self.manifest.name().to_owned();
        let directory = cluster.directory().join("work").join(&name);
        std::fs::create_dir_all(&directory)?;
        let running = RunningWorkload { cluster, kind: self.kind, name, directory };
        cluster.apply(&self.object(&running)?).await?;
        Ok(running)
    }

    fn object(&self, running: &RunningWorkload<'_>) -> Result<Value> {
        // The kubelet replaces it by the pod's name, as each container has it as a variable.
        let log = format!("{SHARED_DIRECTORY}/$(POD_NAME).log");
        let mut template = self.manifest.template(&running.directory, &log);
        for list in ["initContainers", "containers"] {
            for container in template["spec"][list].as_array_mut().into_iter().flatten() {
                container["env"] = json!([{ "name": "POD_NAME", "valueFrom": { "fieldRef": { "fieldPath": "metadata.name" } } }]);
            }
        }
        template["metadata"]["labels"] = json!({ "app": running.name });
        if self.runtime != running.cluster.default_runtime()? {
            template["spec"]["runtimeClassName"] = self.runtime.handler().into();
        }
        add(&mut template["spec"], &self.pod_fields);

        let head =
            json!({ "apiVersion": self.version, "kind": self.kind, "metadata": { "name": running.name } });
        let mut object =
            if self.kind == "Pod" { template } else { json!({ "spec": { "template": template } }) };
        if matches!(self.kind, "Deployment" | "DaemonSet") {
            object["spec"]["selector"] = json!({ "matchLabels": { "app": running.name } });
        }
        let metadata = std::mem::take(&mut object["metadata"]);
        add(&mut object, &head);
        add(&mut object["metadata"], &metadata);
        add(&mut object["spec"], &self.fields);
        Ok(object)
    }
}

fn add(object: &mut Value, fields: &Value) {
    for (key, value) in fields.as_object().into_iter().flatten() {
        object[key] = value.clone();
    }
}

/// A pod as the API server knows it.
#[derive(Clone, Debug)]
pub struct ClusterPod {
    /// Its name.
    pub name: String,
    /// Its identity: another pod of the same name has another.
    pub uid: String,
    /// The node that it is bound to; empty as long as there is none.
    pub node: String,
    /// Its address; empty as long as it has none.
    pub address: String,
    /// Whether all its containers are ready.
    pub ready: bool,
    /// Whether it was deleted, and is going to end.
    pub leaving: bool,
    /// What its kubelet reports.
    pub status: PodStatus,
}

impl ClusterPod {
    /// Reads it from the API server's JSON.
    ///
    /// # Errors
    /// If its status has no pod's form.
    pub fn parse(pod: &Value) -> Result<Self> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let conditions = pod["status"]["conditions"].as_array();
        let ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
        Ok(Self {
            name: text(&pod["metadata"]["name"]),
            uid: text(&pod["metadata"]["uid"]),
            node: text(&pod["spec"]["nodeName"]),
            address: text(&pod["status"]["podIP"]),
            ready: conditions.is_some_and(|conditions| conditions.iter().any(ready)),
            leaving: !pod["metadata"]["deletionTimestamp"].is_null(),
            status: PodStatus::parse(pod)?,
        })
    }

    /// The shim that it runs on while it lives, by its node's processes.
    ///
    /// # Errors
    /// If its node has no sandbox or no shim of it, or more than one.
    pub async fn shim(&self, cluster: &Cluster) -> Result<Runtime> {
        let number = self.node.trim_start_matches("node-").parse();
        let node = cluster.node(number.with_context(|| format!("not on a node: {self:#?}"))?)?;
        let sandboxes = node.cri()?.list_pod_sandboxes().await?;
        let ready = PodSandboxState::SandboxReady as i32;
        let sandbox = sandboxes
            .iter()
            .find(|one| one.state == ready && one.metadata.as_ref().is_some_and(|its| its.uid == self.uid))
            .with_context(|| format!("no sandbox on the node of {self:#?}"))?;
        let found = Footprint::of_containers(&[&sandbox.id]).find(&node)?;
        let has = |shim: &str| found.iter().any(|line| line.starts_with("process: ") && line.contains(shim));
        match (has("containerd-shim-podshim-v2"), has("containerd-shim-runc-v2")) {
            (true, false) => Ok(Runtime::Podshim),
            (false, true) => Ok(Runtime::Runc),
            _ => bail!("not one shim of {}: {found:#?}", self.name),
        }
    }
}

/// A workload that the API server has. Dropping it deletes it.
#[derive(Debug)]
pub struct RunningWorkload<'cluster> {
    cluster: &'cluster Cluster,
    kind: &'static str,
    name: String,
    directory: PathBuf,
}

impl RunningWorkload<'_> {
    /// Its name, which is the value of the label `app` of its pods.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// As kubectl names it: `deployment/NAME`.
    #[must_use]
    pub fn reference(&self) -> String {
        format!("{}/{}", self.kind, self.name)
    }

    /// The object as the API server has it.
    ///
    /// # Errors
    /// If the API server does not answer.
    pub async fn object(&self) -> Result<Value> {
        self.cluster.get(&[&self.reference()]).await
    }

    /// Its pods, by name.
    ///
    /// # Errors
    /// If the API server does not answer.
    pub async fn pods(&self) -> Result<Vec<ClusterPod>> {
        let list = self.cluster.get(&["pods", "--selector", &format!("app={}", self.name)]).await?;
        let mut pods: Vec<_> =
            list["items"].as_array().into_iter().flatten().map(ClusterPod::parse).collect::<Result<_>>()?;
        pods.sort_by(|left, right| left.name.cmp(&right.name));
        Ok(pods)
    }

    /// Waits until its pods are as `expected`, and returns them.
    ///
    /// # Errors
    /// If they are not within that time; the error shows them, and their timelines.
    pub async fn wait_pods(
        &self,
        what: &str,
        within: Duration,
        expected: impl Fn(&[ClusterPod]) -> bool,
    ) -> Result<Vec<ClusterPod>> {
        let mut last = Vec::new();
        let seen = wait::until_seen_every(INTERVAL, what, within, async || {
            last = self.pods().await?;
            Ok(expected(&last).then_some(()))
        })
        .await;
        seen.with_context(|| format!("{last:#?}\n{}", self.all_timelines()))?;
        Ok(last)
    }

    /// Waits until it has that many pods, all of them ready.
    ///
    /// # Errors
    /// As [`wait_pods`](Self::wait_pods).
    pub async fn wait_ready(&self, count: usize, within: Duration) -> Result<Vec<ClusterPod>> {
        let all_ready =
            |pods: &[ClusterPod]| pods.len() == count && pods.iter().all(|pod| pod.ready && !pod.leaving);
        self.wait_pods(&format!("{count} ready pods of {}", self.name), within, all_ready).await
    }

    /// Waits until it has no pod.
    ///
    /// # Errors
    /// As [`wait_pods`](Self::wait_pods).
    pub async fn wait_no_pods(&self, within: Duration) -> Result<()> {
        self.wait_pods(&format!("{} to have no pod", self.name), within, <[_]>::is_empty).await.map(drop)
    }

    /// Waits until the object has a condition of that type.
    ///
    /// # Errors
    /// If it has not within that time; the error shows the object and the timelines.
    pub async fn wait_condition(&self, condition: &str, within: Duration) -> Result<()> {
        let mut last = Value::Null;
        let what = format!("the condition {condition}");
        let seen = wait::until_seen_every(INTERVAL, &what, within, async || {
            last = self.object().await?["status"].take();
            let mut conditions = last["conditions"].as_array().into_iter().flatten();
            let found = conditions.any(|one| one["type"] == condition && one["status"] == "True");
            Ok(found.then_some(()))
        })
        .await;
        seen.with_context(|| format!("{}: {last}\n{}", self.reference(), self.all_timelines()))
    }

    /// What happened in one of its pods, which may be gone by now.
    ///
    /// # Errors
    /// If its log has a line of another form.
    pub fn timeline(&self, pod: &str) -> Result<Timeline> {
        Timeline::read(&self.log(pod))
    }

    /// Waits until a container of a pod has recorded `event` for the `count`th time.
    ///
    /// # Errors
    /// If it has not within that time.
    pub async fn wait_event(
        &self,
        pod: &str,
        event: (&str, crate::Event),
        count: usize,
        within: Duration,
    ) -> Result<Timeline> {
        Timeline::wait_for(&self.log(pod), event.0, event.1, count, within).await
    }

    /// Removes what a pod has recorded so far.
    ///
    /// # Errors
    /// If it has recorded nothing.
    pub fn forget(&self, pod: &str) -> Result<()> {
        std::fs::remove_file(self.log(pod)).with_context(|| format!("{pod} has no log"))
    }

    /// The names of all pods that ever ran, the oldest log first.
    ///
    /// # Errors
    /// If its directory cannot be read.
    pub fn all_that_ran(&self) -> Result<Vec<String>> {
        let mut logs = Vec::new();
        for entry in std::fs::read_dir(&self.directory)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().trim_end_matches(".log").to_owned();
            logs.push((entry.metadata()?.created()?, name));
        }
        logs.sort();
        Ok(logs.into_iter().map(|(_, name)| name).collect())
    }

    /// Changes the object by a patch (strategic merge).
    ///
    /// # Errors
    /// If the API server refuses it.
    pub async fn patch(&self, patch: &Value) -> Result<()> {
        self.cluster.kubectl(&["patch", &self.reference(), "--patch", &patch.to_string()]).await.map(drop)
    }

    /// Deletes it and waits until it has no pod.
    ///
    /// # Errors
    /// If it still has one after that time.
    pub async fn delete(&self, within: Duration) -> Result<()> {
        self.cluster.kubectl(&["delete", &self.reference(), "--wait=false"]).await?;
        self.wait_no_pods(within).await
    }

    /// Leaves it to the end of its cluster.
    pub fn leave(self) {
        std::mem::forget(self);
    }

    fn log(&self, pod: &str) -> PathBuf {
        self.directory.join(format!("{pod}.log"))
    }

    /// For error messages.
    fn all_timelines(&self) -> String {
        let pods = self.all_that_ran().unwrap_or_default();
        let of = |pod: &String| format!("{pod}:\n{}\n", self.timeline(pod).unwrap_or_default());
        pods.iter().map(of).collect()
    }
}

impl Drop for RunningWorkload<'_> {
    fn drop(&mut self) {
        let arguments =
            ["delete", &self.reference(), "--wait=false", "--ignore-not-found"].map(str::to_owned);
        let directory = self.cluster.directory().to_string_lossy().into_owned();
        let all = ["kubectl".to_owned(), directory].into_iter().chain(arguments);
        if let Err(error) = command::run_blocking(&command::script("cluster"), all) {
            // A panic here would hide the failure of the test itself.
            eprintln!("{error:#}");
        }
    }
}
