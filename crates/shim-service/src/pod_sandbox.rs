//! The sandbox of a pod whose caller uses the Sandbox API (CONTRACT §5): what its containers share, kept by mounts.
//!
//! Owns these mounts from CreateSandbox to its end, and the specs that name them. For the pod it is the container that pause is
//! elsewhere; whether it has ended is `pod-lifecycle`'s to say.

pub(crate) mod config;
pub(crate) mod error;
mod spec;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use config::{PodConfig, UserSharing};
use error::SandboxError;
use nix::sys::statfs::{NSFS_MAGIC, statfs};
use nix::unistd::Pid;
use oci_runtime::spec::Spec;
use own_processes::{Pins, PinsRequest};
use pod_lifecycle::{ContainerId, Status, View, WallTime};
use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::warn;

use crate::clock::wall_now;
use crate::spec_draft::SpecDraft;

/// How long a sandbox may wait for its Start. containerd 2.3 pulls the pause image in between, however long that takes; if it
/// cannot, it undoes nothing (trap 32). The kubelet gives up RunPodSandbox after four minutes, twice its `runtimeRequestTimeout`.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(300);

/// A CreateSandbox request, without its id.
#[derive(Debug)]
pub(crate) struct SandboxDetails {
    pub(crate) bundle: PathBuf,
    pub(crate) config: PodConfig,
    /// CRI's network namespace; empty in the node's.
    pub(crate) netns_path: String,
}

/// The sandbox of the Sandbox API.
#[derive(Debug)]
pub(crate) struct PodSandbox {
    id: ContainerId,
    config: PodConfig,
    network: Option<PathBuf>,
    /// None once they are removed.
    pins: Option<Pins>,
    place: PathBuf,
    /// Its own spec, as plugins see it.
    spec: Value,
    created_at: WallTime,
    /// When it is given up; `None` once a caller has started it.
    forgotten_at: Option<Instant>,
}

impl PodSandbox {
    /// Makes what the containers share, and the sandbox's spec.
    ///
    /// # Errors
    /// [`SandboxError`]; nothing is left then.
    pub(crate) fn make(
        id: &ContainerId,
        place: &Path,
        details: &SandboxDetails,
        sysctls: &[(String, String)],
    ) -> Result<Self, SandboxError> {
        let config = details.config.clone();
        let read = |path: &str| {
            fs::read(path).map_err(|source| SandboxError::Read { path: PathBuf::from(path), source })
        };
        let of_node = String::from_utf8_lossy(&read("/proc/sys/kernel/hostname")?).trim().to_owned();
        spec::refuse(&config, &of_node)?;
        let network = config.network(&details.netns_path)?;
        let hostname = match (network.is_some(), config.hostname.as_str()) {
            (true, name) if !name.is_empty() => name.to_owned(),
            _ => of_node,
        };
        // A node may lack the file. A read error fails the sandbox: the pod would never get the file later.
        let read_if_there = |path: &str| if Path::new(path).exists() { read(path) } else { Ok(Vec::new()) };
        let resolv_conf = spec::resolv_conf(&config, read_if_there(spec::RESOLV_CONF.1)?);
        let request = PinsRequest {
            ipc: config.namespaces.ipc,
            root: match config.namespaces.user {
                UserSharing::Pod(root) => Some(root),
                _ => None,
            },
            sysctls: with_defaults(&config, if network.is_some() { sysctls } else { &[] }),
            files: vec![
                (spec::HOSTNAME.0, format!("{hostname}\n").into_bytes()),
                (spec::HOSTS.0, read_if_there(spec::HOSTS.1)?),
                (spec::RESOLV_CONF.0, resolv_conf),
            ],
            hostname,
            network: network.clone(),
        };
        let pins = Pins::make(place, &request).map_err(SandboxError::Pins)?;
        let spec = spec::of_sandbox(id.as_str(), &config, network.as_deref(), &pins);
        Ok(Self {
            id: id.clone(),
            config,
            network,
            pins: Some(pins),
            place: place.to_owned(),
            created_at: wall_now(),
            forgotten_at: Some(Instant::now() + FORGOTTEN_AFTER),
            spec,
        })
    }

    pub(crate) fn is(&self, id: &ContainerId) -> bool {
        self.id == *id
    }

    pub(crate) fn id(&self) -> &ContainerId {
        &self.id
    }

    pub(crate) fn config(&self) -> &PodConfig {
        &self.config
    }

    /// Whether there is no process that is this sandbox: it ends when it is signalled, and not by itself.
    pub(crate) fn has_no_process(&self) -> bool {
        !spec::needs_process_1(&self.config)
    }

    pub(crate) fn created_at(&self) -> WallTime {
        self.created_at
    }

    /// When a sandbox is given up that no caller has started, though its process 1 may have ended since. One whose create is
    /// under way is shown as created too (F11): that create has a limit of its own.
    pub(crate) fn forgotten_at(&self, view: &View) -> Option<Instant> {
        let is_made = view.status != Status::Created || view.has_process;
        self.forgotten_at.filter(|_| is_made)
    }

    /// A caller starts it.
    pub(crate) fn start_begins(&mut self) {
        self.forgotten_at = None;
    }

    /// It is being removed. If that fails, it is removed once more after the same time.
    pub(crate) fn removal_begins(&mut self) {
        self.forgotten_at = Some(Instant::now() + FORGOTTEN_AFTER);
    }

    /// Lets go of all that it holds. Containers that still run keep it.
    pub(crate) fn release(&mut self) {
        if self.pins.take().is_some() {
            self.remove();
        }
    }

    /// For one that comes to nothing.
    pub(crate) fn discard(mut self) {
        self.release();
    }

    fn remove(&self) {
        if let Err(error) = Pins::remove(&self.place) {
            warn!(place = %self.place.display(), %error, "cannot unmount the sandbox's namespaces: delete tries again");
        }
    }

    /// Corrects a container's spec.
    ///
    /// # Errors
    /// What it asks for and the sandbox does not have.
    pub(crate) fn adapt(&self, draft: SpecDraft, process_1: Option<Pid>) -> Result<SpecDraft, SandboxError> {
        let Some(pins) = &self.pins else { return Err(SandboxError::HasEnded) };
        let rewrite =
            spec::SpecRewrite { config: &self.config, network: self.network.as_deref(), pins, process_1 };
        draft.changed(|spec| rewrite.correct(spec).map_err(io::Error::other)).map_err(SandboxError::Correct)
    }

    /// Its own spec, which StartSandbox answers.
    pub(crate) fn spec(&self) -> &Value {
        &self.spec
    }

    /// What `crictl inspectp` shows: containerd reads and writes it as its own `SandboxInfo`.
    pub(crate) fn info(&self, pid: u32, status: Status) -> String {
        // containerd's words, whatever podshim's commands print.
        let status = match status {
            Status::Created => "created",
            Status::Running => "running",
            Status::Paused => "paused",
            Status::Stopped => "stopped",
        };
        json!({
            "pid": pid,
            "processStatus": status,
            "netNamespaceClosed": self.network.as_deref().is_some_and(is_closed),
            "runtimeSpec": self.spec,
        })
        .to_string()
    }
}

/// Whether CRI has removed a network namespace: its path names a namespace no more.
fn is_closed(network: &Path) -> bool {
    !statfs(network).is_ok_and(|file_system| file_system.filesystem_type() == NSFS_MAGIC)
}

/// The node's defaults, where the pod does not set the same. containerd does not tell a shim those of its own configuration.
fn with_defaults(config: &PodConfig, defaults: &[(String, String)]) -> Vec<(String, String)> {
    let own = config.sysctls.iter().map(|(name, value)| (name.clone(), value.clone()));
    let defaults = defaults.iter().filter(|(name, _)| !config.sysctls.contains_key(name));
    own.chain(defaults.cloned()).collect()
}

/// A spec that names a process that cannot exist is refused: also where the pod has no such sandbox.
///
/// # Errors
/// [`SandboxError::OfNoProcess`].
pub(crate) fn refuse_no_process(spec: &Spec) -> Result<(), SandboxError> {
    let namespaces = spec.linux.as_ref().map(|linux| linux.namespaces.as_slice()).unwrap_or_default();
    match spec::names_no_process(namespaces) {
        None => Ok(()),
        Some(path) => Err(SandboxError::OfNoProcess { path: path.to_owned() }),
    }
}

#[cfg(test)]
#[path = "../tests/recorded/mod.rs"]
mod recorded;
#[cfg(test)]
mod tests;
