//! What a spec asks of a sandbox, or why the OCI runtime has to make it.
//!
//! Owns the list of what podshim does itself. Everything that is not on it, in whatever release of the OCI spec it comes,
//! is the OCI runtime's: never half of a spec. Makes nothing.

use std::path::{Path, PathBuf};

use serde_json::Value;
use thiserror::Error;

use super::limits::{self, Limits, is_empty};
use super::program;
use crate::bundle::Bundle;

/// A kind of namespace, and what the spec calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NamespaceKind {
    Cgroup,
    Ipc,
    Mount,
    Network,
    Pid,
    Uts,
}

const NAMESPACES: [(&str, NamespaceKind); 6] = [
    ("cgroup", NamespaceKind::Cgroup),
    ("ipc", NamespaceKind::Ipc),
    ("mount", NamespaceKind::Mount),
    ("network", NamespaceKind::Network),
    ("pid", NamespaceKind::Pid),
    ("uts", NamespaceKind::Uts),
];

/// The resource limits of the spec, `RLIMIT_NOFILE` and the like, by the kernel's numbers.
const RLIMITS: [(&str, u32); 16] = [
    ("RLIMIT_CPU", 0),
    ("RLIMIT_FSIZE", 1),
    ("RLIMIT_DATA", 2),
    ("RLIMIT_STACK", 3),
    ("RLIMIT_CORE", 4),
    ("RLIMIT_RSS", 5),
    ("RLIMIT_NPROC", 6),
    ("RLIMIT_NOFILE", 7),
    ("RLIMIT_MEMLOCK", 8),
    ("RLIMIT_AS", 9),
    ("RLIMIT_LOCKS", 10),
    ("RLIMIT_SIGPENDING", 11),
    ("RLIMIT_MSGQUEUE", 12),
    ("RLIMIT_NICE", 13),
    ("RLIMIT_RTPRIO", 14),
    ("RLIMIT_RTTIME", 15),
];

/// The System V part of an ipc namespace.
const IPC_SYSCTLS: [&str; 8] = [
    "kernel.msgmax",
    "kernel.msgmnb",
    "kernel.msgmni",
    "kernel.sem",
    "kernel.shm_rmid_forced",
    "kernel.shmall",
    "kernel.shmmax",
    "kernel.shmmni",
];

/// What podshim does not do itself.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct NotUnderstood(String);

impl NotUnderstood {
    /// For a reason outside of the spec.
    pub fn because(reason: &str) -> Self {
        Self(reason.to_owned())
    }
}

/// A sandbox that podshim can make.
#[derive(Debug, Clone, PartialEq)]
pub struct SandboxRequest {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) oom_score_adj: Option<i64>,
    pub(super) hostname: String,
    pub(super) domainname: String,
    /// Made for this sandbox.
    pub(super) new: Vec<NamespaceKind>,
    /// Existing ones, by their files.
    pub(super) joined: Vec<(NamespaceKind, PathBuf)>,
    /// Files below /proc/sys, and what is written to them.
    pub(super) sysctls: Vec<(String, String)>,
    /// The kernel's number, the soft and the hard limit.
    pub(super) rlimits: Vec<(u32, u64, u64)>,
    pub(super) cgroups_path: String,
    pub(super) limits: Limits,
}

impl SandboxRequest {
    /// Reads the spec in a bundle.
    ///
    /// # Errors
    /// What podshim does not do itself, for people; also that the spec cannot be read, which the OCI runtime reports.
    pub fn of_bundle(bundle: &Bundle) -> Result<Self, NotUnderstood> {
        if !program::may_be_executed() {
            return Err(NotUnderstood("vm.memfd_noexec is 2".to_owned()));
        }
        let path = bundle.path().join("config.json");
        let text =
            std::fs::read(&path).map_err(|error| NotUnderstood(format!("{}: {error}", path.display())))?;
        let spec = serde_json::from_slice(&text)
            .map_err(|error| NotUnderstood(format!("{}: {error}", path.display())))?;
        Self::of_spec(&spec)
    }

    /// Reads a spec. See [`Self::of_bundle`].
    ///
    /// # Errors
    /// What podshim does not do itself.
    pub fn of_spec(spec: &Value) -> Result<Self, NotUnderstood> {
        // Mounts, masked paths and the root are of a file system that this sandbox has not: its root is empty.
        let spec = only(
            spec,
            "",
            &["annotations", "domainname", "hostname", "linux", "mounts", "ociVersion", "process", "root"],
        )?;
        // It has no capabilities, no environment and no arguments, and always no_new_privs.
        let process = only(
            at(spec, "process"),
            "process.",
            &[
                "args",
                "capabilities",
                "cwd",
                "env",
                "noNewPrivileges",
                "oomScoreAdj",
                "rlimits",
                "terminal",
                "user",
            ],
        )?;
        if !is_empty(at(process, "terminal")) {
            return Err(not_done("process.terminal"));
        }
        let user = only(at(process, "user"), "process.user.", &["additionalGids", "gid", "uid", "umask"])?;
        // Its own filter allows less than any of the spec's. It has no devices, and may make none.
        let linux = only(
            at(spec, "linux"),
            "linux.",
            &[
                "cgroupsPath",
                "devices",
                "maskedPaths",
                "namespaces",
                "readonlyPaths",
                "resources",
                "rootfsPropagation",
                "seccomp",
                "sysctl",
            ],
        )?;
        if !is_empty(at(at(linux, "seccomp"), "listenerPath")) {
            return Err(not_done("linux.seccomp.listenerPath"));
        }
        let cgroups_path = text(linux, "cgroupsPath")?;
        let names_a_group = cgroups_path.starts_with('/') && Path::new(cgroups_path).file_name().is_some();
        if !names_a_group || cgroups_path.split('/').any(|part| part == "..") {
            return Err(NotUnderstood(format!(
                "linux.cgroupsPath {cgroups_path:?}: only a path is made by podshim itself"
            )));
        }
        let (new, joined) = namespaces(at(linux, "namespaces"))?;
        let has = |kind| new.contains(&kind) || joined.iter().any(|(other, _)| *other == kind);
        let (hostname, domainname) =
            (text(spec, "hostname")?.to_owned(), text(spec, "domainname")?.to_owned());
        let has_name = !hostname.is_empty() || !domainname.is_empty();
        if has_name && !has(NamespaceKind::Uts) {
            return Err(not_done("hostname without a uts namespace"));
        }
        let id = |key| match at(user, key) {
            Value::Null => Ok(0),
            id => id.as_u64().and_then(|id| u32::try_from(id).ok()).ok_or_else(|| not_done(key)),
        };
        let oom_score_adj = match at(process, "oomScoreAdj") {
            Value::Null => None,
            score => Some(score.as_i64().ok_or_else(|| not_done("process.oomScoreAdj"))?),
        };
        Ok(Self {
            uid: id("uid")?,
            gid: id("gid")?,
            oom_score_adj,
            hostname,
            domainname,
            sysctls: sysctls(at(linux, "sysctl"), has)?,
            rlimits: rlimits(at(process, "rlimits"))?,
            cgroups_path: cgroups_path.to_owned(),
            limits: limits::understood(at(linux, "resources")).map_err(NotUnderstood)?,
            new,
            joined,
        })
    }

    /// The limits of its control groups.
    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The path of its control groups.
    pub(crate) fn cgroups_path(&self) -> &str {
        &self.cgroups_path
    }
}

fn not_done(field: &str) -> NotUnderstood {
    NotUnderstood(format!("{field} is not done by podshim itself"))
}

static NULL: Value = Value::Null;

fn at<'spec>(value: &'spec Value, key: &str) -> &'spec Value {
    value.get(key).unwrap_or(&NULL)
}

fn text<'spec>(value: &'spec Value, key: &str) -> Result<&'spec str, NotUnderstood> {
    match at(value, key) {
        Value::Null => Ok(""),
        value => value.as_str().ok_or_else(|| not_done(key)),
    }
}

fn list<'spec>(value: &'spec Value, field: &str) -> Result<&'spec [Value], NotUnderstood> {
    match value {
        Value::Null => Ok(&[]),
        value => Ok(value.as_array().ok_or_else(|| not_done(field))?),
    }
}

/// An object, or none, if all of its fields that say something are known.
fn only<'spec>(value: &'spec Value, above: &str, known: &[&str]) -> Result<&'spec Value, NotUnderstood> {
    let Some(map) = value.as_object() else {
        return if value.is_null() { Ok(value) } else { Err(not_done(above.trim_end_matches('.'))) };
    };
    match map.iter().find(|(key, value)| !known.contains(&key.as_str()) && !is_empty(value)) {
        Some((key, _)) => Err(not_done(&format!("{above}{key}"))),
        None => Ok(value),
    }
}

type Namespaces = (Vec<NamespaceKind>, Vec<(NamespaceKind, PathBuf)>);

fn namespaces(value: &Value) -> Result<Namespaces, NotUnderstood> {
    let (mut new, mut joined) = (Vec::new(), Vec::new());
    for entry in list(value, "linux.namespaces")? {
        let entry = only(entry, "linux.namespaces.", &["path", "type"])?;
        let (kind, path) = (text(entry, "type")?, text(entry, "path")?);
        let known = NAMESPACES.iter().find(|(word, _)| *word == kind);
        let Some((_, kind)) = known else { return Err(not_done(&format!("a {kind:?} namespace"))) };
        match (path, kind) {
            ("", kind) => new.push(*kind),
            // Joined by path they are another pod's or the node's.
            (_, NamespaceKind::Mount | NamespaceKind::Pid | NamespaceKind::Cgroup) => {
                return Err(not_done(&format!("the {kind:?} namespace {path:?}")));
            }
            (path, kind) => joined.push((*kind, Path::new(path).to_owned())),
        }
    }
    if !new.contains(&NamespaceKind::Mount) {
        return Err(not_done("a sandbox in the node's mount namespace"));
    }
    Ok((new, joined))
}

/// Only what a namespace of this sandbox keeps to itself; the OCI runtime refuses all others.
fn sysctls(
    value: &Value,
    has: impl Fn(NamespaceKind) -> bool,
) -> Result<Vec<(String, String)>, NotUnderstood> {
    let entries = match value {
        Value::Null => None,
        value => Some(value.as_object().ok_or_else(|| not_done("linux.sysctl"))?),
    };
    let entries = entries.into_iter().flatten().map(|(name, value)| {
        let is_ipc = IPC_SYSCTLS.contains(&name.as_str()) || name.starts_with("fs.mqueue.");
        let is_its_own =
            (is_ipc && has(NamespaceKind::Ipc)) || (name.starts_with("net.") && has(NamespaceKind::Network));
        let plain = |letter: char| letter.is_ascii_alphanumeric() || "._-".contains(letter);
        match value.as_str() {
            Some(text) if is_its_own && name.chars().all(plain) && !name.contains("..") => {
                Ok((name.replace('.', "/"), text.to_owned()))
            }
            _ => Err(not_done(&format!("linux.sysctl.{name}"))),
        }
    });
    entries.collect()
}

fn rlimits(value: &Value) -> Result<Vec<(u32, u64, u64)>, NotUnderstood> {
    let entries = list(value, "process.rlimits")?.iter().map(|entry| {
        let name = text(entry, "type")?;
        let known = RLIMITS.iter().find(|(word, _)| *word == name);
        match (known, at(entry, "soft").as_u64(), at(entry, "hard").as_u64()) {
            (Some((_, number)), Some(soft), Some(hard)) => Ok((*number, soft, hard)),
            _ => Err(not_done(&format!("process.rlimits {name}"))),
        }
    });
    entries.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// As CRI of containerd 1.6 writes it, but for the long lists.
    fn cri() -> Value {
        json!({
            "ociVersion": "1.0.2",
            "process": {
                "user": {"uid": 65535, "gid": 65535, "additionalGids": [65535]}, "args": ["/pause"],
                "env": ["PATH=/bin"], "cwd": "/", "noNewPrivileges": true, "oomScoreAdj": -998,
                "capabilities": {"bounding": ["CAP_CHOWN"]}, "rlimits": [{"type": "RLIMIT_NOFILE", "soft": 5, "hard": 6}],
            },
            "root": {"path": "rootfs", "readonly": true},
            "hostname": "shop",
            "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
            "annotations": {"io.kubernetes.cri.container-type": "sandbox"},
            "linux": {
                "sysctl": {"net.ipv4.ip_unprivileged_port_start": "0", "kernel.shmmax": "5"},
                "resources": {"devices": [{"allow": false, "access": "rwm"}], "cpu": {"shares": 2}},
                "cgroupsPath": "/kubepods/pod1/x",
                "namespaces": [
                    {"type": "pid"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"},
                    {"type": "network", "path": "/run/netns/a"},
                ],
                "seccomp": {"defaultAction": "SCMP_ACT_ERRNO"},
                "maskedPaths": ["/proc/acpi"], "readonlyPaths": ["/proc/bus"],
            },
        })
    }

    #[test]
    fn the_sandbox_of_cri_is_understood() {
        let request = SandboxRequest::of_spec(&cri()).unwrap();
        assert_eq!((request.uid, request.gid, request.oom_score_adj), (65535, 65535, Some(-998)));
        assert_eq!((&*request.hostname, &*request.cgroups_path), ("shop", "/kubepods/pod1/x"));
        let new = [NamespaceKind::Pid, NamespaceKind::Ipc, NamespaceKind::Uts, NamespaceKind::Mount];
        assert_eq!(request.new, new);
        assert_eq!(request.joined, [(NamespaceKind::Network, PathBuf::from("/run/netns/a"))]);
        assert_eq!(request.rlimits, [(7, 5, 6)]);
        let sysctls = [("kernel/shmmax", "5"), ("net/ipv4/ip_unprivileged_port_start", "0")];
        assert_eq!(request.sysctls, sysctls.map(|(file, text)| (file.to_owned(), text.to_owned())));
    }

    /// Never half of a spec: whatever is not known is the OCI runtime's.
    #[test]
    fn what_is_not_known_is_named() {
        for (place, value, reason) in [
            ("/hooks", json!({"prestart": [{"path": "/bin/true"}]}), "hooks"),
            ("/vm", json!({"kernel": {"path": "k"}}), "vm"),
            ("/process/terminal", json!(true), "process.terminal"),
            ("/process/apparmorProfile", json!("cri-containerd.apparmor.d"), "process.apparmorProfile"),
            ("/process/selinuxLabel", json!("a:b:c:d"), "process.selinuxLabel"),
            ("/process/scheduler", json!({"policy": "SCHED_FIFO"}), "process.scheduler"),
            ("/process/rlimits/0/type", json!("RLIMIT_NEW"), "process.rlimits RLIMIT_NEW"),
            ("/linux/uidMappings", json!([{"containerID": 0, "hostID": 1, "size": 5}]), "linux.uidMappings"),
            ("/linux/timeOffsets", json!({"boottime": {"secs": 1}}), "linux.timeOffsets"),
            ("/linux/mountLabel", json!("a:b"), "linux.mountLabel"),
            ("/linux/seccomp/listenerPath", json!("/run/agent"), "linux.seccomp.listenerPath"),
            ("/linux/namespaces/0/type", json!("user"), "a \"user\" namespace"),
            ("/linux/namespaces/0/path", json!("/proc/1/ns/pid"), "the Pid namespace \"/proc/1/ns/pid\""),
            ("/linux/namespaces/2/type", json!("ipc"), "hostname without a uts namespace"),
            ("/linux/namespaces/3/type", json!("ipc"), "a sandbox in the node's mount namespace"),
            ("/linux/sysctl/kernel.pid_max", json!("5"), "linux.sysctl.kernel.pid_max"),
            ("/linux/sysctl/net.a~1b", json!("5"), "linux.sysctl.net.a/b"),
            ("/linux/sysctl/net.ipv4.x", json!(5), "linux.sysctl.net.ipv4.x"),
            ("/linux/resources/cpu/cpus", json!("0"), "linux.resources.cpu.cpus"),
        ] {
            let mut spec = cri();
            let (above, key) = place.rsplit_once('/').unwrap();
            spec.pointer_mut(above).unwrap()[key.replace("~1", "/")] = value.clone();
            if let (Some(list), Ok(index)) =
                (spec.pointer_mut(above).and_then(Value::as_array_mut), key.parse::<usize>())
            {
                list[index] = value;
            }
            let error = SandboxRequest::of_spec(&spec).unwrap_err();
            assert_eq!(error.to_string(), format!("{reason} is not done by podshim itself"), "{place}");
        }
        for path in ["kubepods-pod1.slice:cri-containerd:x", "relative", "/a/../b", "", "/"] {
            let mut spec = cri();
            spec["linux"]["cgroupsPath"] = json!(path);
            assert!(
                SandboxRequest::of_spec(&spec).unwrap_err().to_string().contains("cgroupsPath"),
                "{path}"
            );
        }
    }

    /// A value of another kind is not the same as none: a user that is no number is not root.
    #[test]
    fn what_is_no_value_of_its_field_is_the_oci_runtimes() {
        for (place, value) in [
            ("/process/user/uid", json!("app")),
            ("/process/user/uid", json!(-1)),
            ("/process/user/gid", json!(5_000_000_000_u64)),
            ("/process/oomScoreAdj", json!("low")),
            ("/process/rlimits", json!({"RLIMIT_NOFILE": 5})),
            ("/process/terminal", json!("yes")),
            ("/hostname", json!(["shop"])),
            ("/linux/sysctl", json!(["net.a=1"])),
            ("/linux/namespaces", json!({"type": "mount"})),
            ("/linux/cgroupsPath", json!(7)),
            ("/linux/resources", json!(["cpu"])),
            ("/linux/resources/cpu", json!({"shares": -5})),
            ("/linux/resources/cpu", json!({"quota": "half"})),
            ("/linux/resources/memory", json!({"limit": 1.5})),
            // Here zero says something.
            ("/linux/resources/memory", json!({"swappiness": 0})),
        ] {
            let mut spec = cri();
            let (above, key) = place.rsplit_once('/').unwrap();
            let above = spec.pointer_mut(above).unwrap();
            above[key] = value.clone();
            assert!(SandboxRequest::of_spec(&spec).is_err(), "{place}: {value}");
        }
    }

    /// A field that says nothing needs nothing, whatever it is called.
    #[test]
    fn what_says_nothing_is_no_reason() {
        let mut spec = cri();
        spec["hooks"] = json!({"prestart": []});
        spec["process"]["apparmorProfile"] = json!("");
        spec["linux"]["intelRdt"] = Value::Null;
        spec["linux"]["resources"]["memory"] = json!({"swap": 0});
        assert!(SandboxRequest::of_spec(&spec).is_ok());
    }
}
