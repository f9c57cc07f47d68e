//! What a spec asks of a sandbox, or why the OCI runtime has to make it.
//!
//! Owns the list of what podshim does itself. Everything that is not on it, in whatever release of the OCI spec it comes,
//! is the OCI runtime's: never half of a spec. Makes nothing.

use std::ffi::c_void;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;

use cgroups::CgroupDriver;
use nix::errno::Errno;
use nix::unistd::Pid;
use serde_json::Value;

use super::cgroups_path::CgroupsPath;
use super::field::{NotUnderstood, at, is_empty, list, not_done, only, text};
use super::id_map::{IdMaps, id_maps};
use super::limits::{self, Limits};
use super::namespace;
use crate::systemd::{Manager, Property};

/// A kind of namespace, and what the spec calls it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NamespaceKind {
    Cgroup,
    Ipc,
    Mount,
    Network,
    Pid,
    User,
    Uts,
}

const NAMESPACES: [(&str, NamespaceKind); 7] = [
    ("cgroup", NamespaceKind::Cgroup),
    ("ipc", NamespaceKind::Ipc),
    ("mount", NamespaceKind::Mount),
    ("network", NamespaceKind::Network),
    ("pid", NamespaceKind::Pid),
    ("user", NamespaceKind::User),
    ("uts", NamespaceKind::Uts),
];

/// The number of `RLIMIT_NOFILE`.
pub(super) const OPEN_FILES: u32 = 7;

/// The resource limits of the spec, `RLIMIT_NOFILE` and the like, by the kernel's numbers.
const RLIMITS: [(&str, u32); 16] = [
    ("RLIMIT_CPU", 0),
    ("RLIMIT_FSIZE", 1),
    ("RLIMIT_DATA", 2),
    ("RLIMIT_STACK", 3),
    ("RLIMIT_CORE", 4),
    ("RLIMIT_RSS", 5),
    ("RLIMIT_NPROC", 6),
    ("RLIMIT_NOFILE", OPEN_FILES),
    ("RLIMIT_MEMLOCK", 8),
    ("RLIMIT_AS", 9),
    ("RLIMIT_LOCKS", 10),
    ("RLIMIT_SIGPENDING", 11),
    ("RLIMIT_MSGQUEUE", 12),
    ("RLIMIT_NICE", 13),
    ("RLIMIT_RTPRIO", 14),
    ("RLIMIT_RTTIME", 15),
];

/// The fields that podshim reads, or has no need of. Mounts, masked paths and the root are of a file system that this sandbox has not:
/// its root is empty.
const OF_SPEC: [&str; 8] =
    ["annotations", "domainname", "hostname", "linux", "mounts", "ociVersion", "process", "root"];
/// It has no capabilities, no environment and no arguments, and always no_new_privs.
const OF_PROCESS: [&str; 11] = [
    "apparmorProfile",
    "args",
    "capabilities",
    "cwd",
    "env",
    "noNewPrivileges",
    "oomScoreAdj",
    "rlimits",
    "selinuxLabel",
    "terminal",
    "user",
];
const OF_USER: [&str; 4] = ["additionalGids", "gid", "uid", "umask"];
/// Its own filter allows less than any of the spec's. It has no devices, and may make none.
const OF_LINUX: [&str; 12] = [
    "cgroupsPath",
    "devices",
    "gidMappings",
    "maskedPaths",
    "mountLabel",
    "namespaces",
    "readonlyPaths",
    "resources",
    "rootfsPropagation",
    "seccomp",
    "sysctl",
    "uidMappings",
];

/// The OCI runtimes whose work podshim does itself, by the names of their files. Another one may be no runtime of namespaces.
pub const RUNTIMES: [&str; 2] = ["runc", "crun"];

/// Annotations by which crun does something else.
pub(super) const OF_CRUN: [&str; 2] = ["run.oci.", "module.wasm."];

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
    /// Of a user namespace of its own.
    pub(super) id_maps: Option<IdMaps>,
    /// What the maps of the user namespace that it joins have to be.
    pub(super) maps_of_joined: Option<IdMaps>,
    /// Of AppArmor, which the kernel has then.
    pub(super) profile: String,
    /// Of SELinux, which the kernel has then: the process's, and that of its files.
    pub(super) label: String,
    pub(super) mount_label: String,
    pub(super) cgroups_path: CgroupsPath,
    /// Of its scope, as the spec's annotations say.
    pub(super) properties: Vec<Property>,
    pub(super) limits: Limits,
}

impl SandboxRequest {
    /// Reads a spec, on this machine.
    ///
    /// # Errors
    /// What podshim does not do itself, for people.
    pub fn of(spec: &Value, driver: CgroupDriver) -> Result<Self, NotUnderstood> {
        let request = Self::of_spec(spec, &NodeFeatures { driver, ..NodeFeatures::of_machine() })?;
        request.compare_maps()?;
        Ok(request)
    }

    /// Reads a spec, on such a machine.
    ///
    /// # Errors
    /// What podshim does not do itself.
    fn of_spec(spec: &Value, node: &NodeFeatures) -> Result<Self, NotUnderstood> {
        let spec = only(spec, "", &OF_SPEC)?;
        let (process, user) = process_of(spec)?;
        // The sandbox's program ends if it cannot set its filter.
        if !node.has_seccomp {
            return Err(NotUnderstood::because("a kernel without seccomp filters"));
        }
        let linux = linux_of(spec)?;
        let annotations = at(spec, "annotations");
        let mut keys = annotations.as_object().into_iter().flatten().map(|(key, _)| key);
        if let Some(key) = keys.find(|key| OF_CRUN.iter().any(|prefix| key.starts_with(prefix))) {
            return Err(not_done(&format!("annotation {key}")));
        }
        let cgroups_path = CgroupsPath::of(text(linux, "cgroupsPath")?, node.driver)?;
        if matches!(cgroups_path, CgroupsPath::Scope(_)) && !node.has_systemd {
            return Err(NotUnderstood::because("a scope without systemd"));
        }
        let limits = limits::understood(at(linux, "resources"))?;
        cgroups_path.check(&limits)?;
        let [profile, label, mount_label] = labels(process, linux, node)?;
        let (new, joined) = namespaces(at(linux, "namespaces"))?;
        let (id_maps, maps_of_joined) = maps_of_users(linux, &new, &joined)?;
        let has = |kind| new.contains(&kind) || joined.iter().any(|(other, _)| *other == kind);
        let names = [text(spec, "hostname")?, text(spec, "domainname")?];
        if names.iter().any(|name| !name.is_empty()) && !has(NamespaceKind::Uts) {
            return Err(not_done("hostname without a uts namespace"));
        }
        let [hostname, domainname] = names.map(str::to_owned);
        let oom_score_adj = match at(process, "oomScoreAdj") {
            Value::Null => None,
            score => Some(score.as_i64().ok_or_else(|| not_done("process.oomScoreAdj"))?),
        };
        Ok(Self {
            uid: id_of(user, "uid")?,
            gid: id_of(user, "gid")?,
            oom_score_adj,
            hostname,
            domainname,
            sysctls: sysctls(at(linux, "sysctl"), has)?,
            rlimits: rlimits(at(process, "rlimits"))?,
            id_maps,
            maps_of_joined,
            profile,
            label,
            mount_label,
            cgroups_path,
            properties: properties(annotations)?,
            limits,
            new,
            joined,
        })
    }

    /// runc 1.1 takes a user namespace whose maps are not the spec's as it is, later ones refuse it.
    fn compare_maps(&self) -> Result<(), NotUnderstood> {
        let Some(maps) = &self.maps_of_joined else { return Ok(()) };
        for (_, path) in self.joined.iter().filter(|(kind, _)| *kind == NamespaceKind::User) {
            let is_same = namespace::open(path).and_then(|namespace| maps.are_of(&namespace));
            let wrong = match is_same {
                Ok(true) => continue,
                Ok(false) => "its mappings are not those of the spec".to_owned(),
                Err(error) => error.to_string(),
            };
            return Err(NotUnderstood::because(&format!("the user namespace {}: {wrong}", path.display())));
        }
        Ok(())
    }

    /// The limits of its control groups.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Where its processes are kept.
    pub fn cgroups_path(&self) -> &CgroupsPath {
        &self.cgroups_path
    }

    /// What its scope is to have beside its limits.
    pub fn properties(&self) -> &[Property] {
        &self.properties
    }

    /// Takes the annotations of the spec as it is now.
    ///
    /// # Errors
    /// What podshim does not do itself.
    pub fn annotated(&mut self, spec: &Value) -> Result<(), NotUnderstood> {
        self.properties = properties(at(spec, "annotations"))?;
        Ok(())
    }

    /// The resource limits, by the kernel's numbers, that its process has while it is being made: it opens files meanwhile, and has
    /// the shim's as well.
    pub(super) fn first_rlimits(&self) -> impl Iterator<Item = (u32, u64, u64)> {
        self.rlimits.iter().map(|(number, soft, hard)| match *number {
            OPEN_FILES => (OPEN_FILES, *hard, *hard),
            number => (number, *soft, *hard),
        })
    }

    /// Its limit of open files, if the spec has one.
    pub(super) fn open_files(&self) -> Option<(u64, u64)> {
        self.rlimits.iter().find(|(number, ..)| *number == OPEN_FILES).map(|(_, soft, hard)| (*soft, *hard))
    }

    /// What only the node's root may do for a process: the maps of its user namespace, its score, its limits.
    ///
    /// # Errors
    /// The kernel's, with its file.
    pub fn prepare(&self, pid: Pid) -> io::Result<()> {
        let write = |file: &str, text: &str| {
            let path = format!("/proc/{pid}/{file}");
            fs::write(&path, text).map_err(|error| io::Error::new(error.kind(), format!("{path}: {error}")))
        };
        if let Some(IdMaps { uids, gids }) = &self.id_maps {
            write("uid_map", uids)?;
            write("gid_map", gids)?;
        }
        if let Some(score) = self.oom_score_adj {
            write("oom_score_adj", &score.to_string())?;
        }
        for (number, soft, hard) in self.first_rlimits() {
            let limit = libc::rlimit64 { rlim_cur: soft, rlim_max: hard };
            // SAFETY: the kernel reads the limit, and writes nothing.
            let result = unsafe {
                libc::syscall(
                    libc::SYS_prlimit64,
                    pid.as_raw(),
                    number,
                    &raw const limit,
                    null_mut::<c_void>(),
                )
            };
            Errno::result(result)?;
        }
        Ok(())
    }

    /// Whether the node's root has to do something for the process before it does anything itself.
    pub fn needs_help(&self) -> bool {
        self.id_maps.is_some() || matches!(self.cgroups_path, CgroupsPath::Scope(_))
    }
}

/// What a sandbox can need of the node.
struct NodeFeatures {
    driver: CgroupDriver,
    has_systemd: bool,
    has_apparmor: bool,
    has_selinux: bool,
    has_seccomp: bool,
}

impl NodeFeatures {
    fn of_machine() -> Self {
        let apparmor = fs::read_to_string("/sys/module/apparmor/parameters/enabled");
        Self {
            driver: CgroupDriver::default(),
            has_systemd: Manager::is_there(),
            has_apparmor: apparmor.is_ok_and(|enabled| enabled.trim() == "Y"),
            has_selinux: Path::new("/sys/fs/selinux/enforce").exists(),
            has_seccomp: Path::new("/proc/sys/kernel/seccomp/actions_avail").exists(),
        }
    }
}

/// The process, and its user.
fn process_of(spec: &Value) -> Result<(&Value, &Value), NotUnderstood> {
    let process = only(at(spec, "process"), "process.", &OF_PROCESS)?;
    if !is_empty(at(process, "terminal")) {
        return Err(not_done("process.terminal"));
    }
    let user = only(at(process, "user"), "process.user.", &OF_USER)?;
    // Also 0 says something.
    if !at(user, "umask").is_null() {
        return Err(not_done("process.user.umask"));
    }
    Ok((process, user))
}

fn linux_of(spec: &Value) -> Result<&Value, NotUnderstood> {
    let linux = only(at(spec, "linux"), "linux.", &OF_LINUX)?;
    if !is_empty(at(at(linux, "seccomp"), "listenerPath")) {
        return Err(not_done("linux.seccomp.listenerPath"));
    }
    Ok(linux)
}

pub(super) fn id_of(user: &Value, key: &str) -> Result<u32, NotUnderstood> {
    match at(user, key) {
        Value::Null => Ok(0),
        // The kernel takes the last number for "unchanged".
        id => {
            let number = id.as_u64().and_then(|id| u32::try_from(id).ok());
            number.filter(|id| *id != u32::MAX).ok_or_else(|| not_done(&format!("process.user.{key}")))
        }
    }
}

/// AppArmor's profile; SELinux' label of the process, and that of its files.
fn labels(process: &Value, linux: &Value, node: &NodeFeatures) -> Result<[String; 3], NotUnderstood> {
    let profile = text(process, "apparmorProfile")?;
    // It says better what is missing.
    if !profile.is_empty() && !node.has_apparmor {
        return Err(NotUnderstood::because("process.apparmorProfile on a node without AppArmor"));
    }
    let (label, mount_label) = (text(process, "selinuxLabel")?, text(linux, "mountLabel")?);
    let has_labels = !label.is_empty() || !mount_label.is_empty();
    if has_labels && !node.has_selinux {
        return Err(NotUnderstood::because("labels of SELinux on a node without it"));
    }
    // A policy lets a process of that label begin with files of the other alone; and the other stands in quotation marks among the
    // options of a mount.
    if label.is_empty() != mount_label.is_empty() || mount_label.contains('"') {
        return Err(not_done("linux.mountLabel"));
    }
    Ok([profile, label, mount_label].map(str::to_owned))
}

/// The maps of its own user namespace, and what those of the one that it joins have to be.
fn maps_of_users(
    linux: &Value,
    new: &[NamespaceKind],
    joined: &[(NamespaceKind, PathBuf)],
) -> Result<(Option<IdMaps>, Option<IdMaps>), NotUnderstood> {
    let mut own = id_maps(at(linux, "uidMappings"), at(linux, "gidMappings"))?;
    // CRI of containerd 2 writes them beside the path of a user namespace, which has had them from the beginning.
    let joins_user = joined.iter().any(|(kind, _)| *kind == NamespaceKind::User);
    let of_joined = own.take_if(|_| joins_user);
    if own.is_some() != new.contains(&NamespaceKind::User) {
        return Err(not_done("a user namespace without both of its mappings"));
    }
    // Who is root only in a new user namespace may not enter one that the node's root made.
    if own.is_some() && !joined.is_empty() {
        return Err(not_done("a user namespace beside an existing namespace"));
    }
    Ok((own, of_joined))
}

/// The annotations that are properties of the scope.
fn properties(annotations: &Value) -> Result<Vec<Property>, NotUnderstood> {
    let annotations = annotations.as_object().into_iter().flatten();
    let property = |(key, value): (&String, &Value)| {
        let property = Property::of_annotation(key, value.as_str().unwrap_or_default())?;
        Some(property.map_err(|()| not_done(&format!("annotation {key}"))))
    };
    annotations.filter_map(property).collect()
}

type Namespaces = (Vec<NamespaceKind>, Vec<(NamespaceKind, PathBuf)>);

fn namespaces(value: &Value) -> Result<Namespaces, NotUnderstood> {
    let (mut new, mut joined) = (Vec::new(), Vec::new());
    for entry in list(value, "linux.namespaces")? {
        let entry = only(entry, "linux.namespaces.", &["path", "type"])?;
        let (kind, path) = (text(entry, "type")?, text(entry, "path")?);
        let known = NAMESPACES.iter().find(|(word, _)| *word == kind);
        let Some((_, kind)) = known else { return Err(not_done(&format!("a {kind:?} namespace"))) };
        if new.contains(kind) || joined.iter().any(|(other, _)| other == kind) {
            return Err(not_done(&format!("a second {kind:?} namespace")));
        }
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
pub(super) fn sysctls(
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

pub(super) fn rlimits(value: &Value) -> Result<Vec<(u32, u64, u64)>, NotUnderstood> {
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
mod tests;
