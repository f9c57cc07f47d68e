//! Pods through CRI: a running pod whose containers are created and started in any order. Owns the pod's sandbox, its
//! containers and its directory on the node; the checks are in [`crate::timeline`].

mod attention;
mod cut_off;
mod description;
pub mod faults;
mod sandbox;

pub use attention::ensure_short;
pub use cut_off::remove_all_of;
pub(crate) use description::unique;
pub use description::{NetworkAndIpc, PidNamespace, Pod};

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::task::JoinSet;

use crate::cri::{
    ContainerState, ContainerStatus, LinuxContainerSecurityContext, NamespaceMode, NamespaceOption,
    PodSandboxConfig,
};
use crate::durations::{SOON, pace};
use crate::program::LOG;
use crate::{Containerd, Cri, Event, ExecOutput, Footprint, Runtime, Timeline, wait};

/// How long every trace of a removed pod may take to vanish from the node: the shim ends after its last RPC.
const CLEANUP: Duration = Duration::from_secs(10);

/// How long an exec of a test may take.
const EXEC: Duration = Duration::from_secs(10);

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

impl Pod {
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
        if let Some(path) = network_namespace(&cri, &sandbox).await? {
            footprint.add_network_namespace(&path);
        }
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
}

impl RunningPod<'_> {
    /// The sandbox's id.
    #[must_use]
    pub fn sandbox(&self) -> &str {
        &self.sandbox
    }

    /// The directory that its containers share.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
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
        if self.shim == Shim::Podshim {
            attention::ensure_attentive(self.node, &self.sandbox).await?;
        }
        std::fs::remove_dir_all(&self.directory)?;
        Ok(())
    }
}

/// The path of its network namespace; `None` in the node's.
async fn network_namespace(cri: &Cri, sandbox: &str) -> Result<Option<String>> {
    let status = cri.pod_sandbox_status(sandbox).await?;
    let info: serde_json::Value = serde_json::from_str(status.info.get("info").context("no sandbox info")?)?;
    let namespaces =
        info["runtimeSpec"]["linux"]["namespaces"].as_array().context("no namespaces in the spec")?;
    let network = namespaces.iter().find(|namespace| namespace["type"] == "network");
    network
        .map(|network| Ok(network["path"].as_str().context("a network namespace without a path")?.to_owned()))
        .transpose()
}
