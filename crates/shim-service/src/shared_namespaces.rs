//! Namespace paths that name a process of this pod.
//!
//! CRI fixes a target's pid when the target starts (`kubectl debug --target`), but a restart in place gives the
//! target a new one (R6). Owns the memory of which pid was whose, and the correction of a spec that names a
//! dead one: joining whoever has that pid by now would be a break-out.

use std::collections::BTreeMap;
use std::path::Path;

use nix::unistd::Pid;
use oci_runtime::bundle::Bundle;
use oci_runtime::spec::Spec;
use pod_lifecycle::{ContainerId, Refusal, RefusalKind, Target};
use serde_json::Value;

use crate::error::ServiceError;
use crate::owner::Owner;
use crate::spec_file;

/// The pids that containers of this pod have had, oldest first.
#[derive(Debug, Default)]
pub(crate) struct PidHistory {
    owners: BTreeMap<Pid, ContainerId>,
}

impl PidHistory {
    pub(crate) fn remember(&mut self, pid: Pid, container: &ContainerId) {
        self.owners.insert(pid, container.clone());
    }

    /// A deleted container's pids mean nothing any more; the kernel may give them to anybody.
    pub(crate) fn forget(&mut self, container: &ContainerId) {
        self.owners.retain(|_, owner| owner != container);
    }
}

impl Owner {
    /// Rewrites the namespace paths of a new container's spec that name an earlier process of this pod.
    pub(crate) fn join_live_namespaces(
        &self,
        id: &ContainerId,
        bundle: &Bundle,
        spec: &Spec,
    ) -> Result<(), ServiceError> {
        let namespaces = spec.linux.iter().flat_map(|linux| &linux.namespaces);
        let mut corrections = BTreeMap::new();
        for path in namespaces.map(|namespace| namespace.path.as_path()) {
            let Some((pid, file)) = process_path(path) else { continue };
            let Some(target) = self.history.owners.get(&pid) else { continue };
            match self.live_pid(target) {
                Some(live) if live == pid => {}
                Some(live) => {
                    corrections.insert(path.to_owned(), format!("/proc/{live}/ns/{file}"));
                }
                None => {
                    let message = format!(
                        "cannot create container {id}: it joins a namespace of container {target}, which has no process (pid {pid} is gone)"
                    );
                    return Err(Refusal { kind: RefusalKind::FailedPrecondition, message }.into());
                }
            }
        }
        if corrections.is_empty() {
            return Ok(());
        }
        rewrite(bundle, |path| corrections.get(Path::new(path)).cloned()).map_err(|source| {
            ServiceError::System {
                container: id.to_string(),
                operation: "cannot correct the namespace paths in its config.json",
                source,
            }
        })
    }

    fn live_pid(&self, id: &ContainerId) -> Option<Pid> {
        let view = self.pod.view(&Target::init(id.clone())).ok()?;
        view.has_process.then(|| Pid::from_raw(view.pid.cast_signed()))
    }
}

/// The pid and the namespace's file in `/proc/<pid>/ns/<file>`.
fn process_path(path: &Path) -> Option<(Pid, &str)> {
    let (pid, file) = path.to_str()?.strip_prefix("/proc/")?.split_once("/ns/")?;
    Some((Pid::from_raw(pid.parse().ok()?), file))
}

fn rewrite(bundle: &Bundle, correct: impl Fn(&str) -> Option<String>) -> std::io::Result<()> {
    spec_file::edit(bundle, |spec| {
        let namespaces = spec.pointer_mut("/linux/namespaces").and_then(Value::as_array_mut);
        for namespace in namespaces.into_iter().flatten() {
            if let Some(corrected) = namespace["path"].as_str().and_then(&correct) {
                namespace["path"] = corrected.into();
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R6: a debug container joins the process its target has now; everything else in the spec stays.
    #[test]
    fn r6_namespace_paths_are_corrected_in_place() {
        let directory = tempfile::tempdir().unwrap();
        let config = directory.path().join("config.json");
        let spec = r#"{"ociVersion":"1.0.2","linux":{"namespaces":[
            {"type":"pid","path":"/proc/17/ns/pid"},{"type":"mount"},{"type":"network","path":"/proc/3/ns/net"}]}}"#;
        std::fs::write(&config, spec).unwrap();
        let correct = |path: &str| (path == "/proc/17/ns/pid").then(|| "/proc/99/ns/pid".to_owned());
        rewrite(&Bundle::new(directory.path()), correct).unwrap();
        let after: Value = serde_json::from_slice(&std::fs::read(&config).unwrap()).unwrap();
        assert_eq!(after["ociVersion"], "1.0.2");
        assert_eq!(after["linux"]["namespaces"][0]["path"], "/proc/99/ns/pid");
        assert_eq!(after["linux"]["namespaces"][1], serde_json::json!({"type": "mount"}));
        assert_eq!(after["linux"]["namespaces"][2]["path"], "/proc/3/ns/net");
    }

    #[test]
    fn only_process_paths_are_looked_at() {
        assert_eq!(process_path(Path::new("/proc/17/ns/pid")), Some((Pid::from_raw(17), "pid")));
        assert_eq!(process_path(Path::new("/run/netns/cni-1")), None);
        assert_eq!(process_path(Path::new("/proc/self/ns/net")), None);
        assert_eq!(process_path(Path::new("")), None);
    }
}
