//! A cluster of `hack/cluster`: Kubernetes 1.20 with nodes of its own. What a test runs on it is in
//! [`workload`].

pub mod workload;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::instance::{self, Ownership};
use crate::{Containerd, Runtime, command};

/// Names the directory of the cluster that all tests of a run share. Set by `hack/cluster test`.
pub const SHARED_CLUSTER: &str = "PODSHIM_CLUSTER_DIR";

/// A running cluster.
#[derive(Debug)]
pub struct Cluster {
    directory: PathBuf,
    ownership: Ownership,
}

impl Cluster {
    /// The cluster of this test run.
    ///
    /// # Errors
    /// If there is none: a test without its cluster fails, as it has shown nothing.
    pub fn connect() -> Result<Self> {
        let directory = std::env::var_os(SHARED_CLUSTER);
        let directory =
            directory.with_context(|| format!("{SHARED_CLUSTER} is not set: use hack/cluster test"))?;
        Ok(Self { directory: directory.into(), ownership: Ownership::Shared })
    }

    /// Starts a cluster of the test's own with one node. It ends when the handle is dropped.
    ///
    /// # Errors
    /// If `hack/cluster` fails; the error holds its output.
    pub async fn start() -> Result<Self> {
        let shared = Self::connect()?.directory.clone();
        let mut directory = shared.clone().into_os_string();
        directory.push(format!("-{}", std::process::id()));
        let script = command::script("cluster");
        let arguments =
            ["up".into(), "--dir".into(), directory.clone(), "--like".into(), shared.into_os_string()];
        command::run(&script, arguments).await?.success(&script)?;
        Ok(Self { directory: directory.into(), ownership: Ownership::Own })
    }

    /// Starts again what has died, and returns when the nodes are ready.
    ///
    /// # Errors
    /// If `hack/cluster` fails.
    pub async fn up_again(&self) -> Result<()> {
        let script = command::script("cluster");
        let arguments = [Path::new("up"), Path::new("--dir"), &self.directory];
        command::run(&script, arguments).await?.success(&script).map(drop)
    }

    /// Kills one of the control plane's programs with SIGKILL and returns when it is gone.
    ///
    /// # Errors
    /// If it does not run.
    pub async fn kill(&self, program: &str) -> Result<()> {
        instance::kill(self.pid(program)?, program).await
    }

    /// The pid of one of the control plane's programs; `holder` holds its namespaces.
    ///
    /// # Errors
    /// If it was not started.
    pub fn pid(&self, program: &str) -> Result<libc::pid_t> {
        let file = self.directory.join(format!("{program}.pid"));
        let text = std::fs::read_to_string(&file).with_context(|| format!("no {}", file.display()))?;
        text.trim().parse().with_context(|| format!("{}: not a pid", file.display()))
    }

    /// Ends a cluster of the test's own.
    ///
    /// # Errors
    /// If `hack/cluster` fails.
    pub async fn down(mut self) -> Result<()> {
        self.ownership = Ownership::Shared;
        self.script("down", &[]).await.map(drop)
    }

    /// The cluster's directory: logs and kubeconfigs.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// The shim of pods that name no `RuntimeClass`.
    ///
    /// # Errors
    /// If `hack/cluster` did not make the directory.
    pub fn default_runtime(&self) -> Result<Runtime> {
        let file = self.directory.join("default-runtime");
        let name = std::fs::read_to_string(&file).with_context(|| format!("no {}", file.display()))?;
        let known = [Runtime::Runc, Runtime::Podshim].into_iter().find(|one| one.handler() == name.trim());
        known.with_context(|| format!("{}: not a runtime: {name}", file.display()))
    }

    /// The containerd of a node, by the node's number.
    ///
    /// # Errors
    /// If the cluster has no such node, or it is off.
    pub fn node(&self, number: u32) -> Result<Containerd> {
        let mut directory = self.directory.clone().into_os_string();
        directory.push(format!("-node-{number}"));
        Containerd::attach(Path::new(&directory))
    }

    /// Runs kubectl as the cluster's administrator, and returns its stdout.
    ///
    /// # Errors
    /// If it exits with anything but 0.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        self.script("kubectl", arguments).await
    }

    /// Runs a kubectl that does not end by itself, for whole seconds. timeout ends it, as its process would outlive a killed
    /// script.
    ///
    /// # Errors
    /// Always if it has to be ended, with what it has printed.
    pub async fn kubectl_for(&self, time: Duration, arguments: &[&str]) -> Result<String> {
        let (seconds, script) = (time.as_secs().to_string(), command::script("cluster"));
        let (script, directory) = (script.to_string_lossy(), self.directory.to_string_lossy());
        let all = [&[&*seconds, &*script, "kubectl", &*directory], arguments].concat();
        command::output("timeout", all).await
    }

    /// `kubectl get` of an object or of a list, parsed.
    ///
    /// # Errors
    /// If there is no such object.
    pub async fn get(&self, arguments: &[&str]) -> Result<Value> {
        let output = self.kubectl(&[&["get", "--output=json"], arguments].concat()).await?;
        serde_json::from_str(&output).with_context(|| format!("kubectl get {arguments:?}: no JSON: {output}"))
    }

    /// Makes an object, or changes it.
    ///
    /// # Errors
    /// If the API server refuses it.
    pub async fn apply(&self, object: &Value) -> Result<()> {
        let file = self.directory.join(format!(
            "{}-{}.json",
            object["kind"].as_str().unwrap_or_default(),
            object["metadata"]["name"].as_str().context("an object without a name")?
        ));
        std::fs::write(&file, object.to_string())?;
        self.kubectl(&["apply", "--filename", &file.to_string_lossy()]).await?;
        Ok(())
    }

    /// Ends everything on a node at once.
    ///
    /// # Errors
    /// If `hack/cluster` fails.
    pub async fn power_off(&self, node: u32) -> Result<()> {
        self.script("power-off", &[&node.to_string()]).await.map(drop)
    }

    /// Starts a node again after [`power_off`](Self::power_off). Returns when its kubelet has been started.
    ///
    /// # Errors
    /// If `hack/cluster` fails.
    pub async fn power_on(&self, node: u32) -> Result<()> {
        self.script("power-on", &[&node.to_string()]).await.map(drop)
    }

    /// Runs a command of `hack/cluster` on this cluster.
    async fn script(&self, subcommand: &str, arguments: &[&str]) -> Result<String> {
        let script = command::script("cluster");
        let directory = self.directory.to_string_lossy();
        let all = [&[subcommand, directory.as_ref()], arguments].concat();
        command::run(&script, &all).await?.success(all)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let down = [Path::new("down"), &self.directory];
        if self.ownership == Ownership::Own
            && let Err(error) = command::run_blocking(&command::script("cluster"), down)
        {
            // A panic here would hide the failure of the test itself.
            eprintln!("{error:#}");
        }
    }
}
