//! The few fields of an OCI `config.json` that the shim needs.
//!
//! A shallow read on purpose: the OCI runtime handles unknown fields, and a full model would refuse specs of newer
//! versions. Never writes a spec.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Deserialize;

/// The part of an OCI runtime spec that podshim reads.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Spec {
    /// Annotations, which contain the pod's plan.
    #[serde(default)]
    pub annotations: BTreeMap<String, String>,
    /// The container's process.
    #[serde(default)]
    pub process: Option<ProcessSpec>,
    /// The root file system.
    #[serde(default)]
    pub root: Option<Root>,
    /// Mounts inside the container.
    #[serde(default)]
    pub mounts: Vec<Mount>,
    /// Linux specific settings.
    #[serde(default)]
    pub linux: Option<Linux>,
    /// Hooks that the runtime calls during a container's life.
    #[serde(default)]
    pub hooks: Option<Hooks>,
}

/// The hooks of a spec that podshim has to know of.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Hooks {
    /// Hooks that the runtime's delete calls.
    #[serde(default)]
    pub poststop: Vec<Hook>,
}

/// One hook. Only its presence counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Hook {}

/// The process part of a spec; an Exec request carries the same as JSON.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct ProcessSpec {
    /// Whether it wants a terminal.
    #[serde(default)]
    pub terminal: bool,
    /// The user it runs as.
    #[serde(default)]
    pub user: User,
    /// The command line.
    #[serde(default)]
    pub args: Vec<String>,
    /// Environment, `KEY=value` each.
    #[serde(default)]
    pub env: Vec<String>,
    /// OOM score adjustment, -1000 to 1000: higher values are killed first.
    #[serde(default, rename = "oomScoreAdj")]
    pub oom_score_adj: Option<i32>,
    /// Working directory inside the container.
    #[serde(default)]
    pub cwd: String,
}

/// A user in the container's user namespace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct User {
    /// User id.
    #[serde(default)]
    pub uid: u32,
    /// Group id.
    #[serde(default)]
    pub gid: u32,
    /// Supplementary groups.
    #[serde(default)]
    pub additional_gids: Vec<u32>,
}

/// Where the root file system is.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Root {
    /// Absolute, or relative to the bundle.
    pub path: PathBuf,
}

/// A mount inside the container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Mount {
    /// Path inside the container.
    pub destination: PathBuf,
    /// Source on the host.
    #[serde(default)]
    pub source: Option<PathBuf>,
    /// File system type, or `bind`.
    #[serde(default, rename = "type")]
    pub kind: Option<String>,
    /// Mount options.
    #[serde(default)]
    pub options: Vec<String>,
}

/// Linux specific settings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Linux {
    /// Namespaces the container gets or joins.
    #[serde(default)]
    pub namespaces: Vec<Namespace>,
    /// Path of the cgroup; `slice:prefix:name` selects the systemd driver.
    #[serde(default)]
    pub cgroups_path: Option<String>,
    /// Resource limits.
    #[serde(default)]
    pub resources: Option<Resources>,
}

/// One namespace of the container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Namespace {
    /// `pid`, `network`, `mount`, ...
    #[serde(rename = "type")]
    pub kind: String,
    /// An existing namespace to join; a new one when empty.
    #[serde(default)]
    pub path: PathBuf,
}

/// Resource limits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Resources {
    /// Memory limits.
    #[serde(default)]
    pub memory: Option<MemoryResources>,
}

/// Memory limits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct MemoryResources {
    /// Hard limit in bytes; -1 is unlimited.
    #[serde(default)]
    pub limit: Option<i64>,
}

/// In which pid namespace the container's processes run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PidNamespace {
    /// Its own: when its init ends, the kernel kills everything in it.
    Private,
    /// The host's or another container's: podshim must kill what its init leaves behind.
    Shared,
}

impl Spec {
    /// Which pid namespace the container uses. Without a pid entry it uses the host's.
    pub fn pid_namespace(&self) -> PidNamespace {
        match self.namespace("pid") {
            Some(namespace) if namespace.path.as_os_str().is_empty() => PidNamespace::Private,
            Some(_) | None => PidNamespace::Shared,
        }
    }

    /// The namespace entry of a type, such as `network`.
    pub fn namespace(&self, kind: &str) -> Option<&Namespace> {
        self.linux.as_ref()?.namespaces.iter().find(|namespace| namespace.kind == kind)
    }

    /// The host file bound to `destination` in the container; used to find the termination log (rule J9).
    pub fn bind_source(&self, destination: &std::path::Path) -> Option<&std::path::Path> {
        // A later mount hides an earlier one.
        let mount = self.mounts.iter().rev().find(|mount| mount.destination == destination)?;
        let is_bind = mount.kind.as_deref() == Some("bind")
            || mount.options.iter().any(|option| option == "bind" || option == "rbind");
        mount.source.as_deref().filter(|_| is_bind)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn spec(json: &str) -> Spec {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn pid_namespace_is_private_only_without_a_path() {
        let with = |entry: &str| spec(&format!(r#"{{"linux":{{"namespaces":[{entry}]}}}}"#)).pid_namespace();
        assert_eq!(with(r#"{"type":"pid"}"#), PidNamespace::Private);
        assert_eq!(with(r#"{"type":"pid","path":"/proc/7/ns/pid"}"#), PidNamespace::Shared);
        assert_eq!(with(r#"{"type":"network"}"#), PidNamespace::Shared);
        assert_eq!(spec("{}").pid_namespace(), PidNamespace::Shared);
    }

    #[test]
    fn bind_source_takes_the_last_bind_of_a_destination() {
        let spec = spec(
            r#"{"mounts":[
            {"destination":"/log","type":"bind","source":"/a","options":["rbind"]},
            {"destination":"/log","type":"bind","source":"/b"},
            {"destination":"/tmp","type":"tmpfs","source":"tmpfs"}]}"#,
        );
        assert_eq!(spec.bind_source(Path::new("/log")), Some(Path::new("/b")));
        assert_eq!(spec.bind_source(Path::new("/tmp")), None);
        assert_eq!(spec.bind_source(Path::new("/none")), None);
    }

    #[test]
    fn unknown_and_missing_fields_are_accepted() {
        let spec = spec(
            r#"{"ociVersion":"9","hooks":{},"annotations":{"k":"v"},"process":{"terminal":true,"args":["a"],
            "user":{"uid":1,"gid":2,"additionalGids":[3]},"cwd":"/","rlimits":[]},"root":{"path":"rootfs"},
            "linux":{"cgroupsPath":"/x","resources":{"memory":{"limit":5,"swap":6},"cpu":{}}}}"#,
        );
        let process = spec.process.unwrap();
        assert!(process.terminal);
        assert_eq!(process.user, User { uid: 1, gid: 2, additional_gids: vec![3] });
        let linux = spec.linux.unwrap();
        assert_eq!(linux.cgroups_path.as_deref(), Some("/x"));
        assert_eq!(linux.resources.unwrap().memory.unwrap().limit, Some(5));
    }
}
