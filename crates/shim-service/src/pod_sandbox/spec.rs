//! The OCI specs of a pod of the Sandbox API: the sandbox's own, which podshim writes, and those of its containers, which it
//! corrects.
//!
//! containerd knows no process of such a sandbox and writes `/proc/0/ns/...` into the containers' specs (CONTRACT §5). Owns
//! what stands there instead, and that none of it is left. Reads and writes no file.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Component, Path, PathBuf};

use nix::unistd::Pid;
use own_processes::{Pins, Sharing};
use pod_spec::kruise;
use serde_json::{Value, json};

use super::config::{PidSharing, PodConfig, UserSharing};
use super::error::SandboxError;
use crate::cri::{CONTAINER_TYPE, SANDBOX, SANDBOX_ID, SANDBOX_NAME, SANDBOX_NAMESPACE, SANDBOX_UID};

/// The namespace paths of a process that does not exist.
const NO_PROCESS: &str = "/proc/0/";
/// The files of a pod, by their names and places in a container.
pub(crate) const HOSTNAME: (&str, &str) = ("hostname", "/etc/hostname");
pub(crate) const HOSTS: (&str, &str) = ("hosts", "/etc/hosts");
pub(crate) const RESOLV_CONF: (&str, &str) = ("resolv.conf", "/etc/resolv.conf");
const SHM: &str = "/dev/shm";
/// As containerd's pause container: the lowest share, and killed after everything else.
const SHARES: u64 = 2;
const OOM_SCORE: i64 = -998;
/// By the kernel's numbers.
const CAP_SYS_RESOURCE: u32 = 24;
/// The user of containerd's pause image.
const PAUSE_USER: u32 = 65_535;

/// The sandbox's own spec. `delete`, the history and the plan read its annotations; plugins of NRI see its namespaces and
/// mounts.
pub(crate) fn of_sandbox(id: &str, config: &PodConfig, network: Option<&Path>, pins: &Pins) -> Value {
    // What podshim reads alone: others mean something to systemd, to the OCI runtime and to `start`, and a pod's author writes them.
    let mut annotations: BTreeMap<&str, &str> = BTreeMap::new();
    annotations.extend(ours(config));
    annotations.extend([
        (CONTAINER_TYPE, SANDBOX),
        (SANDBOX_ID, id),
        (SANDBOX_NAME, &config.name),
        (SANDBOX_NAMESPACE, &config.namespace),
        (SANDBOX_UID, &config.uid),
    ]);
    let mut namespaces = vec![json!({"type": "mount"})];
    let mut joined = |kind: &str, path: Option<&Path>| {
        namespaces.extend(path.map(|path| json!({"type": kind, "path": path})));
    };
    joined("network", network);
    joined("ipc", pins.ipc().as_deref());
    joined("uts", pins.uts().as_deref());
    joined("user", pins.user().as_deref());
    if config.namespaces.pid != PidSharing::Node {
        namespaces.push(json!({"type": "pid"}));
    }
    let mut spec = json!({
        "ociVersion": "1.1.0",
        "process": {
            "user": {"uid": PAUSE_USER, "gid": PAUSE_USER},
            "args": ["/pause"],
            "cwd": "/",
            "noNewPrivileges": true,
        },
        "root": {"path": "rootfs", "readonly": true},
        "annotations": annotations,
        "linux": {"namespaces": namespaces, "resources": {"cpu": {"shares": SHARES}}},
        "mounts": shared_mounts(pins, Access::ReadOnly).collect::<Vec<_>>(),
    });
    // Only a process needs groups. A unit that never exists would stand in the order of a shutdown (N5).
    if config.namespaces.pid == PidSharing::Pod {
        spec["linux"]["cgroupsPath"] = cgroups_path(&config.cgroup_parent, id).into();
        if may_lower_its_score(&fs::read_to_string("/proc/self/status").unwrap_or_default()) {
            spec["process"]["oomScoreAdj"] = OOM_SCORE.into();
        }
    }
    spec
}

/// Whether a process may take a lower `oom_score_adj` than its parent: CAP_SYS_RESOURCE, which a node in a container often has not.
/// containerd has `restrict_oom_score_adj` for that, which no request carries.
pub(super) fn may_lower_its_score(status: &str) -> bool {
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let set = effective.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or_default();
    set & (1 << CAP_SYS_RESOURCE) != 0
}

/// The pod's annotations that podshim reads: its own, and Kruise's marks (S12).
fn ours(config: &PodConfig) -> impl Iterator<Item = (&str, &str)> {
    let all = config.annotations.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    all.filter(|(key, _)| key.starts_with(pod_spec::PREFIX) || kruise::is_mark(key))
}

/// Where containerd's pause container would be: a scope below a slice, or a group below a group.
fn cgroups_path(parent: &str, id: &str) -> String {
    let last = parent.rsplit('/').next().unwrap_or_default();
    match last.ends_with(".slice") {
        true => format!("{last}:cri-containerd:{id}"),
        false => format!("{}/{id}", parent.trim_end_matches('/')),
    }
}

/// What a container's spec gets in place of references to the sandbox's process, which does not exist.
pub(crate) struct SpecRewrite<'a> {
    pub(crate) config: &'a PodConfig,
    pub(crate) network: Option<&'a Path>,
    pub(crate) pins: &'a Pins,
    /// Process 1 of a shared pid namespace, while it lives.
    pub(crate) process_1: Option<Pid>,
}

/// What a container gets in place of a namespace of no process.
enum Substitute {
    Joined(PathBuf),
    /// One of its own.
    New,
    OfNode,
}

impl SpecRewrite<'_> {
    /// Corrects the spec of a container of the pod: namespaces, the pod's files, podshim's annotations.
    ///
    /// # Errors
    /// What it asks for and the sandbox does not have.
    pub(crate) fn correct(&self, spec: &mut Value) -> Result<(), SandboxError> {
        self.correct_namespaces(spec)?;
        self.correct_mounts(spec);
        // The sandbox's count (11.4); `delete` reads a container's own when the shim is dead.
        for (key, value) in ours(self.config) {
            spec["annotations"][key] = value.into();
        }
        Ok(())
    }

    fn correct_namespaces(&self, spec: &mut Value) -> Result<(), SandboxError> {
        let namespaces = spec.pointer_mut("/linux/namespaces").and_then(Value::as_array_mut);
        let Some(namespaces) = namespaces else { return Ok(()) };
        let mut kept = Vec::new();
        for mut namespace in std::mem::take(namespaces) {
            let path = namespace["path"].as_str().unwrap_or_default();
            if !path.starts_with(NO_PROCESS) {
                kept.push(namespace);
                continue;
            }
            let kind = namespace["type"].as_str().unwrap_or_default();
            match self.namespace(kind)? {
                Substitute::Joined(path) => namespace["path"] = path.to_string_lossy().into(),
                Substitute::New => namespace["path"] = "".into(),
                // Without an entry the container stays in the node's.
                Substitute::OfNode => continue,
            }
            kept.push(namespace);
        }
        *namespaces = kept;
        Ok(())
    }

    fn namespace(&self, kind: &str) -> Result<Substitute, SandboxError> {
        let namespaces = self.config.namespaces;
        let joined = |path: Option<PathBuf>| path.map_or(Substitute::OfNode, Substitute::Joined);
        match kind {
            "network" => Ok(joined(self.network.map(Path::to_owned))),
            "ipc" => Ok(joined(self.pins.ipc())),
            "uts" => Ok(joined(self.pins.uts())),
            "user" if self.pins.user().is_some() => Ok(joined(self.pins.user())),
            "pid" => match (namespaces.pid, self.process_1) {
                (PidSharing::Node, _) => Ok(Substitute::OfNode),
                // The pod's would be that of its pause container, in which no other container is but one that says so too.
                (PidSharing::Container, _) => Ok(Substitute::New),
                (PidSharing::Pod, Some(pid)) => {
                    Ok(Substitute::Joined(PathBuf::from(format!("/proc/{pid}/ns/pid"))))
                }
                (PidSharing::Pod, None) => Err(SandboxError::NoProcess1),
            },
            _ => Err(SandboxError::NoNamespace { kind: kind.to_owned() }),
        }
    }

    /// containerd 2.x adds the pod's files only where it has made them itself: the container would see those of its image, and
    /// a /dev/shm of its own. containerd 1.7 names sources that do not exist.
    fn correct_mounts(&self, spec: &mut Value) {
        let access = match spec.pointer("/root/readonly") {
            Some(Value::Bool(true)) => Access::ReadOnly,
            _ => Access::ReadWrite,
        };
        if !spec["mounts"].is_array() {
            spec["mounts"] = json!([]);
        }
        let Some(mounts) = spec["mounts"].as_array_mut() else { return };
        mounts.retain(|mount| !is_default(mount));
        for mount in shared_mounts(self.pins, access) {
            let place = destination(&mount);
            // A mount of the kubelet or of the pod's author wins.
            if mounts.iter().any(|one| destination(one) == place) {
                continue;
            }
            // A volume below it comes after it, or would be hidden: containerd sorts its mounts by their depth.
            let below = mounts.iter().position(|one| destination(one).starts_with(&place));
            mounts.insert(below.unwrap_or(mounts.len()), mount);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Access {
    ReadOnly,
    ReadWrite,
}

/// The pod's files and its /dev/shm.
fn shared_mounts(pins: &Pins, access: Access) -> impl Iterator<Item = Value> {
    let bind = |destination: &str, source: PathBuf, access| {
        let word = if access == Access::ReadOnly { "ro" } else { "rw" };
        json!({"destination": destination, "type": "bind", "source": source, "options": ["rbind", "rprivate", word]})
    };
    let files = [HOSTNAME, HOSTS, RESOLV_CONF].map(|(name, place)| bind(place, pins.file(name), access));
    files.into_iter().chain([bind(SHM, pins.shm(), Access::ReadWrite)])
}

/// Where it is mounted. containerd passes a pod author's `mountPath` on as it is written, as `/dev/shm/`.
fn destination(mount: &Value) -> PathBuf {
    let mut place = PathBuf::from("/");
    for part in Path::new(mount["destination"].as_str().unwrap_or_default()).components() {
        match part {
            Component::Normal(name) => place.push(name),
            Component::ParentDir => _ = place.pop(),
            _ => {}
        }
    }
    place
}

/// Whether containerd has written the mount where it found no files of the pod.
fn is_default(mount: &Value) -> bool {
    let text = |key: &str| mount[key].as_str().unwrap_or_default();
    let is_private_shm = text("destination") == SHM && text("type") == "tmpfs" && text("source") == "shm";
    let is_of_cri = text("source").contains("/io.containerd.grpc.v1.cri/sandboxes/");
    let is_file = [HOSTNAME, HOSTS, RESOLV_CONF].iter().any(|(_, place)| *place == text("destination"));
    is_private_shm || (is_of_cri && (is_file || text("destination") == SHM))
}

/// A namespace of a process that cannot exist: to join it fails, or hits another process one day.
pub(crate) fn names_no_process(namespaces: &[oci_runtime::spec::Namespace]) -> Option<&Path> {
    namespaces.iter().map(|namespace| namespace.path.as_path()).find(|path| path.starts_with(NO_PROCESS))
}

/// The file of the resolver: the pod's, or a copy of the node's.
pub(crate) fn resolv_conf(config: &PodConfig, of_node: Vec<u8>) -> Vec<u8> {
    let dns = &config.dns;
    let mut lines = Vec::new();
    if !dns.searches.is_empty() {
        lines.push(format!("search {}\n", dns.searches.join(" ")));
    }
    lines.extend(dns.servers.iter().map(|server| format!("nameserver {server}\n")));
    if !dns.options.is_empty() {
        lines.push(format!("options {}\n", dns.options.join(" ")));
    }
    if lines.is_empty() { of_node } else { lines.concat().into_bytes() }
}

/// Whether containers share a pid namespace, whose process 1 podshim makes.
pub(crate) fn needs_process_1(config: &PodConfig) -> bool {
    config.namespaces.pid == PidSharing::Pod
}

/// Refuses a pod that cannot be one on a node of that name.
///
/// # Errors
/// [`SandboxError`].
pub(crate) fn refuse(config: &PodConfig, name_of_node: &str) -> Result<(), SandboxError> {
    let PodConfig { hostname, namespaces, .. } = config;
    if namespaces.network == Sharing::Node && !hostname.is_empty() && hostname != name_of_node {
        return Err(SandboxError::HostnameOfNode { hostname: hostname.clone() });
    }
    match namespaces.user {
        UserSharing::Pod(_) if namespaces.network == Sharing::Node => Err(SandboxError::UserWithNodesNetwork),
        UserSharing::WithoutRoot => Err(SandboxError::UserWithoutRoot),
        UserSharing::Unknown => Err(SandboxError::UnknownUser),
        UserSharing::Node | UserSharing::Pod(_) => Ok(()),
    }
}
