//! Pods through CRI: the builder, and a running pod whose containers are created and started in any order. Owns the
//! pod's sandbox, its containers and its directory on the node; the checks are in [`crate::timeline`].

mod cut_off;
mod faults;
mod sandbox;

pub use cut_off::remove_all_of;
pub use faults::{is_of_a_cut_off_create, is_of_a_shim};

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_cri::v1::{
    Capability, ContainerConfig, ContainerMetadata, ContainerState, ContainerStatus, IdMapping, ImageSpec,
    KeyValue, LinuxContainerConfig, LinuxContainerResources, LinuxContainerSecurityContext,
    LinuxPodSandboxConfig, LinuxSandboxSecurityContext, Mount, NamespaceMode, NamespaceOption,
    PodSandboxConfig, PodSandboxMetadata, UserNamespace,
};
use tokio::task::JoinSet;

use crate::durations::{SOON, pace};
use crate::program::{LOG, SHARED_DIRECTORY};
use crate::{Containerd, Cri, Event, ExecOutput, Footprint, Program, Runtime, Timeline, wait};

/// The namespace of all pods of the tests, as Kubernetes would have it.
const NAMESPACE: &str = "e2e";
/// How long every trace of a removed pod may take to vanish from the node: the shim ends after its last RPC.
const CLEANUP: Duration = Duration::from_secs(10);

/// How long an exec of a test may take.
const EXEC: Duration = Duration::from_secs(10);

/// A pod's name, unique among the tests that run at the same time (one process each).
pub(crate) fn unique(name: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("{name}-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Which pid namespace the containers of a pod have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PidNamespace {
    /// One each (the kubelet's default).
    #[default]
    Container,
    /// One for all (`shareProcessNamespace`).
    Pod,
    /// The node's (`hostPID`).
    Node,
}

/// A pod to be run.
#[derive(Clone, Debug)]
pub struct Pod {
    name: String,
    uid: String,
    annotations: HashMap<String, String>,
    programs: Vec<Program>,
    pid_namespace: PidNamespace,
    host_ids: Option<u32>,
    grace: Option<Duration>,
    cgroup_parent: Option<String>,
}

impl Pod {
    /// A pod without annotations and containers. The name is made unique.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let uid = unique(name);
        Self {
            name: uid.clone(),
            uid,
            annotations: HashMap::new(),
            programs: Vec::new(),
            pid_namespace: PidNamespace::default(),
            host_ids: None,
            grace: None,
            cgroup_parent: None,
        }
    }

    /// Gives it this name, which another pod may have too, as the successor of a deleted pod has: their UIDs differ.
    #[must_use]
    pub fn called(mut self, name: &str) -> Self {
        name.clone_into(&mut self.name);
        self
    }

    /// The pod's UID, unique.
    #[must_use]
    pub fn uid(&self) -> &str {
        &self.uid
    }

    /// The annotation `podshim.io/<key>`.
    #[must_use]
    pub fn annotate(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(format!("podshim.io/{key}"), value.to_owned());
        self
    }

    /// An annotation of the pod that is not podshim's.
    #[must_use]
    pub fn annotate_with(mut self, key: &str, value: &str) -> Self {
        self.annotations.insert(key.to_owned(), value.to_owned());
        self
    }

    /// Adds a container. Nothing is created before [`RunningPod::create`].
    #[must_use]
    pub fn container(mut self, program: Program) -> Self {
        self.programs.push(program);
        self
    }

    /// The kubelet's termination grace period (whole seconds), annotated on every container as the kubelet does (F8).
    #[must_use]
    pub fn kubelet_grace(mut self, grace: Duration) -> Self {
        self.grace = Some(grace);
        self
    }

    /// The containers' pid namespace.
    #[must_use]
    pub fn pid_namespace(mut self, pid_namespace: PidNamespace) -> Self {
        self.pid_namespace = pid_namespace;
        self
    }

    /// The pod's cgroup, instead of the default one below the instance's.
    #[must_use]
    pub fn cgroup_parent(mut self, path: &str) -> Self {
        self.cgroup_parent = Some(path.to_owned());
        self
    }

    /// A user namespace for the pod (`hostUsers: false`): its ids 0 to 65535 are the node's from `first` on.
    #[must_use]
    pub fn user_namespace(mut self, first: u32) -> Self {
        self.host_ids = Some(first);
        self
    }

    /// Runs the sandbox (RunPodSandbox): afterwards the pause container is up, and no other container exists.
    ///
    /// # Errors
    /// What containerd answers; then nothing of the pod is left on the node.
    pub async fn run(self, node: &Containerd, runtime: Runtime) -> Result<RunningPod<'_>> {
        self.run_handler(node, runtime.handler()).await
    }

    /// The same with any runtime handler of the instance's configuration.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub async fn run_handler<'node>(
        self,
        node: &'node Containerd,
        handler: &str,
    ) -> Result<RunningPod<'node>> {
        let directory = node.directory().join("pods").join(&self.uid);
        std::fs::create_dir_all(&directory)?;
        let cgroup = match &self.cgroup_parent {
            Some(path) => path.clone(),
            None => node.pod_cgroup(&self.uid)?,
        };
        let config = self.sandbox_config(&directory, &cgroup);
        let cri = node.cri()?;
        let sandbox = match cri.run_pod_sandbox(&config, handler).await {
            Ok(sandbox) => sandbox,
            Err(error) => {
                std::fs::remove_dir_all(&directory)?;
                return Err(error);
            }
        };
        let mut footprint = Footprint::of_pod(&sandbox, &cgroup);
        footprint.add_shim_socket(node, "k8s.io", &sandbox)?;
        footprint.add_network_namespace(&network_namespace(&cri, &sandbox).await?);
        let shim = if handler.starts_with("podshim") { Shim::Podshim } else { Shim::Other };
        Ok(RunningPod {
            pod: self,
            node,
            cri,
            config,
            sandbox,
            directory,
            containers: Vec::new(),
            footprint,
            shim,
        })
    }

    fn namespaces(&self) -> NamespaceOption {
        let pid = match self.pid_namespace {
            PidNamespace::Container => NamespaceMode::Container,
            PidNamespace::Pod => NamespaceMode::Pod,
            PidNamespace::Node => NamespaceMode::Node,
        };
        let userns_options = self.host_ids.is_some().then(|| UserNamespace {
            mode: NamespaceMode::Pod.into(),
            uids: self.id_mappings(),
            gids: self.id_mappings(),
        });
        NamespaceOption { pid: pid.into(), userns_options, ..NamespaceOption::default() }
    }

    fn id_mappings(&self) -> Vec<IdMapping> {
        let mapping = |host_id| IdMapping { host_id, container_id: 0, length: 65536 };
        self.host_ids.map(mapping).into_iter().collect()
    }

    fn sandbox_config(&self, directory: &std::path::Path, cgroup: &str) -> PodSandboxConfig {
        PodSandboxConfig {
            metadata: Some(PodSandboxMetadata {
                name: self.name.clone(),
                uid: self.uid.clone(),
                namespace: NAMESPACE.to_owned(),
                attempt: 0,
            }),
            log_directory: directory.join("output").to_string_lossy().into_owned(),
            annotations: self.annotations.clone(),
            linux: Some(LinuxPodSandboxConfig {
                cgroup_parent: cgroup.to_owned(),
                security_context: Some(LinuxSandboxSecurityContext {
                    namespace_options: Some(self.namespaces()),
                    ..LinuxSandboxSecurityContext::default()
                }),
                ..LinuxPodSandboxConfig::default()
            }),
            ..PodSandboxConfig::default()
        }
    }

    fn container_config(
        &self,
        program: &Program,
        attempt: u32,
        directory: &std::path::Path,
    ) -> ContainerConfig {
        let mut annotations: HashMap<String, String> = program.annotations().iter().cloned().collect();
        annotations.insert("io.kubernetes.container.restartCount".to_owned(), attempt.to_string());
        if let Some(grace) = self.grace {
            annotations
                .insert("io.kubernetes.pod.terminationGracePeriod".to_owned(), grace.as_secs().to_string());
        }
        ContainerConfig {
            metadata: Some(ContainerMetadata { name: program.name().to_owned(), attempt }),
            image: Some(ImageSpec { image: program.image().to_owned(), ..ImageSpec::default() }),
            command: program.command(&format!("{SHARED_DIRECTORY}/{LOG}")),
            mounts: [(directory, SHARED_DIRECTORY)]
                .into_iter()
                .chain(program.mounts().iter().map(|(node_path, path)| (node_path.as_path(), path.as_str())))
                .map(|(node_path, path)| Mount {
                    container_path: path.to_owned(),
                    host_path: node_path.to_string_lossy().into_owned(),
                    // As the kubelet does: without the mappings the pod's root could not write to files of the node's
                    // root.
                    uid_mappings: self.id_mappings(),
                    gid_mappings: self.id_mappings(),
                    ..Mount::default()
                })
                .collect(),
            envs: program
                .variables()
                .iter()
                .map(|(key, value)| KeyValue { key: key.clone(), value: value.clone() })
                .collect(),
            annotations,
            stdin: program.has_stdin(),
            log_path: format!("{}.{attempt}.log", program.name()),
            linux: Some(LinuxContainerConfig {
                resources: Some(LinuxContainerResources {
                    memory_limit_in_bytes: program.memory_limit_bytes().unwrap_or_default(),
                    oom_score_adj: program.own_oom_score(),
                    ..LinuxContainerResources::default()
                }),
                security_context: Some(LinuxContainerSecurityContext {
                    namespace_options: Some(self.namespaces()),
                    capabilities: Some(Capability {
                        add_capabilities: program.added_capabilities().to_vec(),
                        ..Capability::default()
                    }),
                    ..LinuxContainerSecurityContext::default()
                }),
            }),
            ..ContainerConfig::default()
        }
    }
}

/// A container that was created.
#[derive(Debug)]
struct Created {
    name: String,
    id: String,
}

/// A pod whose sandbox runs. End it with [`remove`](Self::remove). `hack/containerd-down` removes the pod of a failed
/// test, because `Drop` cannot await.
#[derive(Debug)]
pub struct RunningPod<'node> {
    pod: Pod,
    node: &'node Containerd,
    cri: Cri,
    config: PodSandboxConfig,
    sandbox: String,
    directory: PathBuf,
    containers: Vec<Created>,
    footprint: Footprint,
    shim: Shim,
}

/// Which shim serves the pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shim {
    Podshim,
    Other,
}

impl RunningPod<'_> {
    /// The sandbox's id.
    #[must_use]
    pub fn sandbox(&self) -> &str {
        &self.sandbox
    }

    /// The pod's unique name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.pod.name
    }

    /// What it was made from.
    #[must_use]
    pub fn pod(&self) -> &Pod {
        &self.pod
    }

    /// The pid of the newest container called `name`.
    ///
    /// # Errors
    /// If none was created, or what containerd answers.
    pub async fn pid(&self, name: &str) -> Result<libc::pid_t> {
        self.cri.container_pid(self.id(name)?).await
    }

    /// The id of the newest container called `name`.
    ///
    /// # Errors
    /// If none was created.
    pub fn id(&self, name: &str) -> Result<&str> {
        let created = self.containers.iter().rev().find(|created| created.name == name);
        Ok(&created.with_context(|| format!("container {name} was not created"))?.id)
    }

    /// CreateContainer. If one of that name was created before, the attempt number is the next one. Returns the id.
    ///
    /// # Errors
    /// What containerd answers, or if the pod has no such container.
    pub async fn create(&mut self, name: &str) -> Result<String> {
        let program = self.pod.programs.iter().find(|program| program.name() == name);
        let program = program.with_context(|| format!("the pod has no container {name}"))?;
        let attempt = self.containers.iter().filter(|created| created.name == name).count().try_into()?;
        let target = program.pid_namespace_of().map(|name| self.id(name)).transpose()?;
        let mut config = self.pod.container_config(program, attempt, &self.directory);
        if let (Some(target), Some(linux)) = (target, &mut config.linux) {
            linux.security_context = Some(LinuxContainerSecurityContext {
                namespace_options: Some(NamespaceOption {
                    pid: NamespaceMode::Target.into(),
                    target_id: target.to_owned(),
                    ..NamespaceOption::default()
                }),
                ..LinuxContainerSecurityContext::default()
            });
        }
        let id = self.cri.create_container(&self.sandbox, config, &self.config).await?;
        self.footprint.add_container(&id);
        self.containers.push(Created { name: name.to_owned(), id: id.clone() });
        Ok(id)
    }

    /// CreateContainer and StartContainer, as a kubelet does for one container.
    ///
    /// # Errors
    /// What containerd answers.
    pub async fn start(&mut self, name: &str) -> Result<()> {
        let id = self.create(name).await?;
        self.cri.start_container(&id).await.with_context(|| format!("cannot start {name}"))
    }

    /// Starts containers one after another, in this order.
    ///
    /// # Errors
    /// What containerd answers for the first that fails.
    pub async fn start_all(&mut self, names: &[&str]) -> Result<()> {
        for name in names {
            self.start(name).await?;
        }
        Ok(())
    }

    /// StopContainer; returns when it has exited.
    ///
    /// # Errors
    /// What containerd answers.
    pub async fn stop(&self, name: &str, timeout: Duration) -> Result<()> {
        self.cri.stop_container(self.id(name)?, timeout).await
    }

    /// StopContainer for every container at the same moment, as a kubelet that knows no sidecars does (F9). Returns
    /// when all have exited.
    ///
    /// # Errors
    /// What containerd answers for the first that fails.
    pub async fn stop_all_at_once(&self, timeout: Duration) -> Result<()> {
        let mut stops = JoinSet::new();
        for created in &self.containers {
            let (cri, id) = (self.cri.clone(), created.id.clone());
            stops.spawn(async move { cri.stop_container(&id, timeout).await });
        }
        while let Some(stopped) = stops.join_next().await {
            stopped??;
        }
        Ok(())
    }

    /// Runs a command in a container.
    ///
    /// # Errors
    /// What containerd answers; another exit code than 0 is no error.
    pub async fn exec(&self, name: &str, command: &[&str]) -> Result<ExecOutput> {
        self.cri.exec_sync(self.id(name)?, command, EXEC * pace()).await
    }

    /// ContainerStatus of the newest container of that name.
    ///
    /// # Errors
    /// What containerd answers.
    pub async fn status(&self, name: &str) -> Result<ContainerStatus> {
        self.cri.container_status(self.id(name)?).await
    }

    /// Waits until CRI reports a container as exited, and gives its status.
    ///
    /// # Errors
    /// If it is not within that time; the error shows the timeline.
    pub async fn wait_exited(&self, name: &str, within: Duration) -> Result<ContainerStatus> {
        wait::until(&format!("{name} to exit"), within, async || {
            let status = self.status(name).await?;
            Ok((status.state() == ContainerState::ContainerExited).then_some(status))
        })
        .await
        .with_context(|| format!("the timeline so far:\n{}", self.timeline().unwrap_or_default()))
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
        Timeline::wait_for(&self.directory.join(LOG), name, event, count, within)
            .await
            .with_context(|| format!("the timeline so far:\n{}", self.timeline().unwrap_or_default()))
    }

    /// What happened so far.
    ///
    /// # Errors
    /// If the log has a line of another form.
    pub fn timeline(&self) -> Result<Timeline> {
        Timeline::read(&self.directory.join(LOG))
    }

    /// A container's output as the CRI logged it: lines of `<time> <stdout|stderr> <F|P> <text>`, newest attempt.
    ///
    /// # Errors
    /// If there is no log.
    pub fn output(&self, name: &str) -> Result<String> {
        let attempt = self.containers.iter().filter(|created| created.name == name).count();
        if attempt == 0 {
            bail!("container {name} was not created");
        }
        let path = self.directory.join("output").join(format!("{name}.{}.log", attempt - 1));
        std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
    }

    /// Waits until a container's log holds `text`, and returns the log. Output reaches the log a moment after every
    /// other effect of the container.
    ///
    /// # Errors
    /// If it does not in time; the error shows the log.
    pub async fn wait_for_output(&self, name: &str, text: &str) -> Result<String> {
        wait::until(&format!("{text:?} in the log of {name}"), SOON, async || {
            let log = self.output(name)?;
            Ok(log.contains(text).then_some(log))
        })
        .await
        .with_context(|| format!("the log so far:\n{}", self.output(name).unwrap_or_default()))
    }

    /// What the node has of the pod now: one line for each process, file, mount or cgroup.
    ///
    /// # Errors
    /// If the instance is not up.
    pub fn leftovers(&self) -> Result<Vec<String>> {
        self.footprint.find(self.node)
    }

    /// StopPodSandbox.
    ///
    /// # Errors
    /// What containerd answers.
    pub async fn stop_sandbox(&self) -> Result<()> {
        self.cri.stop_pod_sandbox(&self.sandbox).await
    }

    /// Stops and removes the pod as a kubelet does. Checks that nothing of it is left on the node, and that its shim's
    /// thread was never blocked for long (docs/trust.md).
    ///
    /// # Errors
    /// What containerd answers, or the list of what is left.
    pub async fn remove(self) -> Result<()> {
        self.stop_sandbox().await?;
        for created in &self.containers {
            self.cri.remove_container(&created.id).await?;
        }
        self.cri.remove_pod_sandbox(&self.sandbox).await?;
        self.footprint
            .wait_gone(self.node, CLEANUP)
            .await
            .with_context(|| format!("pod {}", self.pod.name))?;
        self.ensure_attentive().await?;
        std::fs::remove_dir_all(&self.directory)?;
        Ok(())
    }
}

async fn network_namespace(cri: &Cri, sandbox: &str) -> Result<String> {
    let status = cri.pod_sandbox_status(sandbox).await?;
    let info: serde_json::Value = serde_json::from_str(status.info.get("info").context("no sandbox info")?)?;
    let namespaces =
        info["runtimeSpec"]["linux"]["namespaces"].as_array().context("no namespaces in the spec")?;
    let network = namespaces.iter().find(|namespace| namespace["type"] == "network");
    Ok(network.and_then(|namespace| namespace["path"].as_str()).context("no network namespace")?.to_owned())
}
