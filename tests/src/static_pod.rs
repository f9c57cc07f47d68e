//! Pods that a [`Kubelet`] runs from manifests: the builder, a running pod, and the status that the kubelet reports.
//! Talks to containerd only to look; the kubelet does everything that happens to the pod.

mod status;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

pub use self::status::{ContainerState, ContainerStatus, Phase, PodStatus};
use crate::cri::{Container, ContainerState as CriState, PodSandbox, PodSandboxState};
use crate::pod::unique;
use crate::program::{LOG, SHARED_DIRECTORY};
use crate::{Cri, Event, Footprint, Kubelet, Program, Timeline, wait};

/// How often the kubelet is polled: it looks at its containers once a second itself.
const INTERVAL: Duration = Duration::from_millis(200);

/// When the kubelet deletes a pod, it uses a list of containers that may be two seconds old (pkg/kubelet/container,
/// defaultCachePeriod), and nothing shows how old it is.
const CACHE_PERIOD: Duration = Duration::from_millis(2500);

/// `spec.restartPolicy`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RestartPolicy {
    /// The kubelet's default.
    #[default]
    Always,
    /// A job whose failures are retried.
    OnFailure,
    /// A job.
    Never,
}

impl RestartPolicy {
    /// As manifests and `podshim.io/restart-policy` spell it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            RestartPolicy::Always => "Always",
            RestartPolicy::OnFailure => "OnFailure",
            RestartPolicy::Never => "Never",
        }
    }
}

/// A volume of a pod, in all its containers.
#[derive(Clone, Copy, Debug)]
enum Volume {
    /// The directory with the shared log.
    Shared,
    /// A tmpfs.
    Memory,
}

impl Volume {
    fn definition(self, directory: &Path) -> Value {
        match self {
            Volume::Shared => json!({ "name": "pod", "hostPath": { "path": directory } }),
            Volume::Memory => json!({ "name": "memory", "emptyDir": { "medium": "Memory" } }),
        }
    }

    fn mount(self) -> Value {
        match self {
            Volume::Shared => json!({ "name": "pod", "mountPath": SHARED_DIRECTORY }),
            Volume::Memory => json!({ "name": "memory", "mountPath": "/memory" }),
        }
    }
}

/// A manifest to be run.
#[derive(Clone, Debug)]
pub struct Manifest {
    name: String,
    annotations: Map<String, Value>,
    policy: RestartPolicy,
    grace: Duration,
    volumes: Vec<Volume>,
    inits: Vec<(Program, Value)>,
    containers: Vec<(Program, Value)>,
    uid: Option<String>,
}

impl Manifest {
    /// A pod without annotations and containers, with 30 s of grace. The name is made unique.
    #[must_use]
    pub fn new(name: &str) -> Self {
        Self {
            name: unique(name),
            annotations: Map::new(),
            policy: RestartPolicy::default(),
            grace: Duration::from_secs(30),
            volumes: vec![Volume::Shared],
            inits: Vec::new(),
            containers: Vec::new(),
            uid: None,
        }
    }

    /// Gives the manifest a UID. Without one the kubelet takes a changed manifest for another pod; with one it keeps
    /// the pod and recreates the changed containers.
    #[must_use]
    pub fn changeable(mut self) -> Self {
        self.uid = Some(self.name.clone());
        self
    }

    /// The annotation `podshim.io/<key>`.
    #[must_use]
    pub fn annotate(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(format!("podshim.io/{key}"), value.into());
        self
    }

    /// An annotation that is not podshim's.
    #[must_use]
    pub fn annotate_with(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(key.to_owned(), value.into());
        self
    }

    /// `restartPolicy`, and the annotation that passes it to podshim.
    #[must_use]
    pub fn policy(mut self, policy: RestartPolicy) -> Self {
        self.policy = policy;
        self.annotate("restart-policy", policy.word())
    }

    /// `terminationGracePeriodSeconds` (whole seconds).
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Adds a volume that is a mount on the node, as the token of a service account is, which every pod of a cluster
    /// has. A restarted kubelet does not touch the cgroup of a pod with such a volume.
    #[must_use]
    pub fn memory_volume(mut self) -> Self {
        self.volumes.push(Volume::Memory);
        self
    }

    /// Adds a container to `containers`.
    #[must_use]
    pub fn container(self, program: Program) -> Self {
        self.container_with(program, json!({}))
    }

    /// Adds a container with more fields: probes, hooks.
    #[must_use]
    pub fn container_with(mut self, program: Program, fields: Value) -> Self {
        self.containers.push((program, fields));
        self
    }

    /// Changes the image of a container.
    #[must_use]
    pub fn with_image(mut self, name: &str, image: &str) -> Self {
        for (_, fields) in self.containers.iter_mut().filter(|(program, _)| program.name() == name) {
            fields["image"] = image.into();
        }
        self
    }

    /// Gives a container `resources`.
    #[must_use]
    pub fn with_resources(mut self, name: &str, resources: Value) -> Self {
        for (_, fields) in self.containers.iter_mut().filter(|(program, _)| program.name() == name) {
            fields["resources"] = resources.clone();
        }
        self
    }

    /// Adds a container to `initContainers`, which this kubelet knows and runs one after another before the others.
    #[must_use]
    pub fn init_container(mut self, program: Program) -> Self {
        self.inits.push((program, json!({})));
        self
    }

    /// Gives the manifest to the kubelet.
    ///
    /// # Errors
    /// If its directory or file cannot be made.
    pub fn run(self, kubelet: &Kubelet) -> Result<StaticPod<'_>> {
        StaticPod::begin(kubelet, self.name.clone(), |directory| self.text(directory))
    }

    fn text(&self, directory: &Path) -> String {
        let mut pod = self.template(directory, &format!("{SHARED_DIRECTORY}/{LOG}"));
        pod["apiVersion"] = "v1".into();
        pod["kind"] = "Pod".into();
        pod["metadata"]["name"] = self.name.as_str().into();
        pod["metadata"]["uid"] = json!(self.uid);
        pod.to_string()
    }

    /// `metadata` and `spec`, as the template of a Deployment has them. The containers share `directory`, and `log` is
    /// the path of their log inside them.
    pub(crate) fn template(&self, directory: &Path, log: &str) -> Value {
        let all = |list: &[(Program, Value)]| -> Vec<Value> {
            list.iter().map(|(program, fields)| container(program, fields, &self.volumes, log)).collect()
        };
        let volumes: Vec<Value> = self.volumes.iter().map(|volume| volume.definition(directory)).collect();
        json!({
            "metadata": { "annotations": self.annotations },
            "spec": {
                "restartPolicy": self.policy.word(),
                "terminationGracePeriodSeconds": self.grace.as_secs(),
                "volumes": volumes,
                "initContainers": all(&self.inits),
                "containers": all(&self.containers),
            },
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

fn container(program: &Program, fields: &Value, volumes: &[Volume], log: &str) -> Value {
    let mut value = json!({
        "name": program.name(),
        "image": "podshim.test/busybox:1",
        "command": program.command(log),
        "volumeMounts": volumes.iter().map(|volume| volume.mount()).collect::<Vec<_>>(),
    });
    if let Some(bytes) = program.memory_limit_bytes() {
        value["resources"] = json!({ "limits": { "memory": bytes } });
    }
    for (key, field) in fields.as_object().into_iter().flatten() {
        value[key] = field.clone();
    }
    value
}

/// A pod whose manifest the kubelet has. Dropping it removes the manifest; the kubelet then deletes the pod.
#[derive(Debug)]
pub struct StaticPod<'kubelet> {
    kubelet: &'kubelet Kubelet,
    cri: Cri,
    /// The kubelet's name for it: ends with the name of the node.
    name: String,
    manifest: PathBuf,
    directory: PathBuf,
}

impl<'kubelet> StaticPod<'kubelet> {
    /// Gives the kubelet a manifest that the test wrote. In it POD_NAME and POD_DIRECTORY stand for the pod's name and
    /// for the directory that its containers share.
    ///
    /// # Errors
    /// If its directory or file cannot be made.
    pub fn run(kubelet: &'kubelet Kubelet, name: &str, text: &str) -> Result<Self> {
        let name = unique(name);
        let text = text.replace("POD_NAME", &name);
        Self::begin(kubelet, name, |directory| text.replace("POD_DIRECTORY", &directory.to_string_lossy()))
    }

    fn begin(kubelet: &'kubelet Kubelet, name: String, text: impl FnOnce(&Path) -> String) -> Result<Self> {
        let directory = kubelet.node().directory().join("pods").join(&name);
        std::fs::create_dir_all(&directory)?;
        // Moved there in one step, so that the kubelet never reads half of it.
        let written = directory.join("manifest");
        std::fs::write(&written, text(&directory))?;
        let manifest = kubelet.manifests().join(&name);
        std::fs::rename(&written, &manifest)?;
        let cri = kubelet.node().cri()?;
        Ok(Self { kubelet, cri, name: format!("{name}-podshim"), manifest, directory })
    }

    /// Gives the kubelet a changed manifest of this pod (see [`Manifest::changeable`]).
    ///
    /// # Errors
    /// If its file cannot be made.
    pub fn change(&self, manifest: &Manifest) -> Result<()> {
        let written = self.directory.join("manifest");
        std::fs::write(&written, manifest.text(&self.directory))?;
        Ok(std::fs::rename(&written, &self.manifest)?)
    }

    /// The directory that its containers share.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// What happened so far.
    ///
    /// # Errors
    /// If the log has a line of another form.
    pub fn timeline(&self) -> Result<Timeline> {
        Timeline::read(&self.directory.join(LOG))
    }

    /// Waits until a container has recorded an event `count` times.
    ///
    /// # Errors
    /// If it has not within that time; the error shows the timeline.
    pub async fn wait_for(
        &self,
        name: &str,
        event: Event,
        count: usize,
        within: Duration,
    ) -> Result<Timeline> {
        let log = self.directory.join(LOG);
        self.explained(Timeline::wait_for(&log, name, event, count, within).await).await
    }

    /// The status of the pod that the kubelet reports.
    ///
    /// # Errors
    /// If it does not answer, or knows no such pod.
    pub async fn status(&self) -> Result<PodStatus> {
        PodStatus::parse(&self.kubelet.pod(&self.name).await?.context("the kubelet knows no such pod")?)
    }

    /// Waits until the status that the kubelet reports meets `expected`.
    ///
    /// # Errors
    /// If it does not within that time; the error shows the status and the timeline.
    pub async fn wait_status(
        &self,
        what: &str,
        within: Duration,
        expected: impl Fn(&PodStatus) -> bool,
    ) -> Result<PodStatus> {
        let seen =
            wait::until_seen_every(INTERVAL, &format!("the kubelet to say {what}"), within, async || {
                let Some(pod) = self.kubelet.pod(&self.name).await? else { return Ok(None) };
                let status = PodStatus::parse(&pod)?;
                Ok(expected(&status).then_some(status))
            })
            .await;
        self.explained(seen).await
    }

    /// Waits until the kubelet has refused the manifest, and returns the line of its log.
    ///
    /// # Errors
    /// If it does not within that time.
    pub async fn wait_refused(&self, within: Duration) -> Result<String> {
        let log = self.kubelet.node().directory().join("kubelet.log");
        let start = format!("Can't process manifest file {:?}", self.manifest);
        let seen =
            wait::until_seen_every(INTERVAL, "the kubelet to refuse the manifest", within, async || {
                let log = std::fs::read_to_string(&log)?;
                Ok(log.lines().find(|line| line.contains(&start)).map(str::to_owned))
            })
            .await;
        self.explained(seen).await
    }

    /// Waits until the kubelet has seen every container of the pod run, or exit with 0. Only then does a removed
    /// manifest stop them all in order: a container that the kubelet has not seen yet gets no stop signal, but SIGKILL
    /// with the sandbox.
    ///
    /// # Errors
    /// As [`wait_status`](Self::wait_status).
    pub async fn wait_seen(&self, within: Duration) -> Result<PodStatus> {
        let seen = |status: &PodStatus| {
            let mut states = status.containers.iter().map(|container| &container.state);
            !status.containers.is_empty() && states.all(|state| state.is_running() || state.code() == Some(0))
        };
        let status = self.wait_status("that all containers run", within, seen).await?;
        wait::quiet_time(CACHE_PERIOD).await;
        Ok(status)
    }

    /// Removes the manifest: the kubelet deletes the pod with its grace period.
    ///
    /// # Errors
    /// If it was removed before.
    pub fn delete(&self) -> Result<()> {
        std::fs::remove_file(&self.manifest)
            .with_context(|| format!("cannot remove {}", self.manifest.display()))
    }

    /// Waits until the pod has ended: no container runs, its sandbox is stopped, and no process of it is left, not even
    /// its shim. Returns its timeline.
    ///
    /// # Errors
    /// If it has not within that time; the error shows what is left.
    pub async fn wait_ended(&self, within: Duration) -> Result<Timeline> {
        let mut left = Vec::new();
        let waited = wait::until_seen_every(INTERVAL, "the pod to have ended", within, async || {
            left = self.what_runs().await?;
            Ok(left.is_empty().then_some(()))
        })
        .await;
        self.explained(waited.with_context(|| format!("left: {left:#?}"))).await?;
        self.timeline()
    }

    /// The pid of the newest running container of that name.
    ///
    /// # Errors
    /// If none of that name runs.
    pub async fn pid(&self, name: &str) -> Result<libc::pid_t> {
        self.cri.container_pid(&self.running(name).await?.id).await
    }

    /// Stops the newest running container of that name behind the kubelet's back.
    ///
    /// # Errors
    /// If none of that name runs, or what containerd answers.
    pub async fn stop_container(&self, name: &str, timeout: Duration) -> Result<()> {
        self.cri.stop_container(&self.running(name).await?.id, timeout).await
    }

    async fn running(&self, name: &str) -> Result<Container> {
        let running = self.containers().await?.into_iter().filter(|container| {
            container.state() == CriState::ContainerRunning
                && container.metadata.as_ref().is_some_and(|metadata| metadata.name == name)
        });
        let newest = running.max_by_key(|container| container.created_at);
        newest.with_context(|| format!("no {name} runs"))
    }

    /// The pod's footprint on the node, by the ids of its sandboxes and containers.
    ///
    /// # Errors
    /// What containerd answers.
    pub async fn footprint(&self) -> Result<Footprint> {
        let mut ids = Vec::new();
        for sandbox in self.sandboxes().await? {
            ids.extend(self.cri.list_containers(&sandbox.id).await?.into_iter().map(|found| found.id));
            ids.push(sandbox.id);
        }
        Ok(Footprint::of_containers(&ids.iter().map(String::as_str).collect::<Vec<_>>()))
    }

    /// Its containers, also those that have ended and that the kubelet has not removed yet.
    ///
    /// # Errors
    /// What containerd answers.
    pub async fn containers(&self) -> Result<Vec<Container>> {
        let mut containers = Vec::new();
        for sandbox in self.sandboxes().await? {
            containers.extend(self.cri.list_containers(&sandbox.id).await?);
        }
        Ok(containers)
    }

    async fn sandboxes(&self) -> Result<Vec<PodSandbox>> {
        let mut sandboxes = self.cri.list_pod_sandboxes().await?;
        sandboxes
            .retain(|sandbox| sandbox.metadata.as_ref().is_some_and(|metadata| metadata.name == self.name));
        Ok(sandboxes)
    }

    async fn what_runs(&self) -> Result<Vec<String>> {
        let running =
            self.containers().await?.into_iter().filter(|it| it.state() == CriState::ContainerRunning);
        let mut left: Vec<String> = running.map(|it| format!("container: {}", it.id)).collect();
        let ready = self.sandboxes().await?.into_iter();
        let ready = ready.filter(|sandbox| sandbox.state() == PodSandboxState::SandboxReady);
        left.extend(ready.map(|sandbox| format!("sandbox: {}", sandbox.id)));
        if left.is_empty() {
            left = self.footprint().await?.find(self.kubelet.node())?;
            left.retain(|line| line.starts_with("process: "));
        }
        Ok(left)
    }

    /// Adds the kubelet's status and the timeline to an error.
    async fn explained<T>(&self, result: Result<T>) -> Result<T> {
        let Err(error) = result else { return result };
        let (status, timeline) = (self.status().await, self.timeline().unwrap_or_default());
        Err(error.context(format!("the kubelet says {status:#?}; the timeline so far:\n{timeline}")))
    }
}

impl Drop for StaticPod<'_> {
    fn drop(&mut self) {
        // The test may have removed it.
        let _ = std::fs::remove_file(&self.manifest);
    }
}
