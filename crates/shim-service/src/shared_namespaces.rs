//! Namespace paths in a spec that name a process of this pod.
//!
//! CRI fixes a target's pid when the target starts (`kubectl debug --target`), but a restart in place gives the target a new
//! one (R6). Owns which pids the pod's containers have had, and the correction of a spec that names an old one: a container
//! may never join another process that has the pid by now.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;

use nix::unistd::Pid;
use pod_lifecycle::{Caller, ContainerId, Refusal, RefusalKind};
use processes::Process;
use serde_json::Value;

use crate::cri;
use crate::error::ServiceError;
use crate::spec_draft::SpecDraft;

/// How many pids of a container are kept beside the first one, which CRI names: the last ones, which a caller may have seen
/// just now.
const LATER_PIDS_MOST: usize = 16;

/// The pids that containers of this pod have had, oldest first.
#[derive(Debug, Default)]
pub(crate) struct PidHistory {
    pids: BTreeMap<ContainerId, VecDeque<Pid>>,
}

impl PidHistory {
    pub(crate) fn remember(&mut self, pid: Pid, container: &ContainerId) {
        // The kernel may have given the pid to another container's process before.
        self.pids.values_mut().for_each(|pids| pids.retain(|earlier| *earlier != pid));
        let pids = self.pids.entry(container.clone()).or_default();
        pids.push_back(pid);
        if pids.len() > 1 + LATER_PIDS_MOST {
            pids.remove(1);
        }
    }

    /// A deleted container's pids mean nothing any more: the kernel may give them to any process.
    pub(crate) fn forget(&mut self, container: &ContainerId) {
        self.pids.remove(container);
    }

    fn owner(&self, pid: Pid) -> Option<&ContainerId> {
        self.pids.iter().find(|(_, pids)| pids.contains(&pid)).map(|(id, _)| id)
    }
}

/// What a path means that names a pid of this pod.
#[derive(Debug, PartialEq, Eq)]
enum Meaning {
    /// The process that has the pid now; the path is right.
    Itself,
    /// The container whose pid it was; this is its process now.
    Live(Pid),
    /// The container whose pid it was, which has no process.
    Gone,
    /// The container whose pid it was, and another process has the pid by now.
    AnotherProcess,
}

/// What a caller means by `pid`, which was a container's whose process now is `live`. CRI names a container by the pid it had
/// at its Start. Other callers look the pid up when they create, and mean the process that has it now.
fn meaning(pid: Pid, live: Option<Pid>, is_alive: impl Fn(Pid) -> bool, caller: Caller) -> Meaning {
    match (live, caller) {
        (Some(live), _) if live == pid => Meaning::Itself,
        (_, Caller::Other) if is_alive(pid) => Meaning::Itself,
        (_, Caller::Cri) if is_alive(pid) => Meaning::AnotherProcess,
        (Some(live), _) => Meaning::Live(live),
        (None, _) => Meaning::Gone,
    }
}

fn is_alive(pid: Pid) -> bool {
    Process::open(pid).is_ok_and(|process| process.is_running())
}

/// Corrects the namespace paths in a new container's spec that name an earlier process of this pod. `live_pid` gives a
/// container's current pid.
pub(crate) fn join_live(
    pids: &PidHistory,
    live_pid: impl Fn(&ContainerId) -> Option<Pid>,
    id: &ContainerId,
    draft: SpecDraft,
) -> Result<SpecDraft, ServiceError> {
    let spec = draft.spec();
    let namespaces = spec.linux.iter().flat_map(|linux| &linux.namespaces);
    let mut corrections = BTreeMap::new();
    for path in namespaces.map(|namespace| namespace.path.as_path()) {
        let Some((pid, file)) = process_path(path) else { continue };
        let Some(target) = pids.owner(pid) else { continue };
        let why = match meaning(pid, live_pid(target), is_alive, cri::caller(spec)) {
            Meaning::Itself => continue,
            Meaning::Live(live) => {
                corrections.insert(path.to_owned(), format!("/proc/{live}/ns/{file}"));
                continue;
            }
            Meaning::Gone => format!("which has no process (pid {pid} is gone)"),
            Meaning::AnotherProcess => format!("whose pid {pid} is another process's by now"),
        };
        let message =
            format!("cannot create container {id}: it joins a namespace of container {target}, {why}");
        return Err(Refusal { kind: RefusalKind::FailedPrecondition, message }.into());
    }
    if corrections.is_empty() {
        return Ok(draft);
    }
    let corrected = draft.changed(|spec| {
        correct(spec, |path| corrections.get(Path::new(path)).cloned());
        Ok(())
    });
    corrected.map_err(|source| ServiceError::System {
        container: id.to_string(),
        operation: "cannot correct the namespace paths in its config.json",
        source,
    })
}

/// The pid and the namespace's file in `/proc/<pid>/ns/<file>`.
fn process_path(path: &Path) -> Option<(Pid, &str)> {
    let (pid, file) = path.to_str()?.strip_prefix("/proc/")?.split_once("/ns/")?;
    Some((Pid::from_raw(pid.parse().ok()?), file))
}

fn correct(spec: &mut Value, correction: impl Fn(&str) -> Option<String>) {
    let namespaces = spec.pointer_mut("/linux/namespaces").and_then(Value::as_array_mut);
    for namespace in namespaces.into_iter().flatten() {
        if let Some(corrected) = namespace["path"].as_str().and_then(&correction) {
            namespace["path"] = corrected.into();
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// R6: a debug container joins the current process of its target; everything else in the spec stays.
    #[test]
    fn r6_namespace_paths_are_corrected_in_place() {
        let spec = |pid: &str| {
            json!({"ociVersion": "1.0.2", "linux": {"namespaces": [
                {"type": "pid", "path": pid}, {"type": "mount"}, {"type": "network", "path": "/proc/3/ns/net"},
            ]}})
        };
        let mut changed = spec("/proc/17/ns/pid");
        correct(&mut changed, |path| (path == "/proc/17/ns/pid").then(|| "/proc/99/ns/pid".to_owned()));
        assert_eq!(changed, spec("/proc/99/ns/pid"));
    }

    /// R6: the first pid, which CRI names for as long as the container lives, and the last ones.
    #[test]
    fn r6_of_a_container_that_is_restarted_for_ever_few_pids_are_kept() {
        let (mut history, [proxy, logs]) = (PidHistory::default(), ["proxy", "logs"].map(ContainerId::from));
        (1..=1000).for_each(|pid| history.remember(Pid::from_raw(pid), &proxy));
        let kept: Vec<i32> = history.pids[&proxy].iter().map(|pid| pid.as_raw()).collect();
        assert_eq!(kept, [&[1][..], &(985..=1000).collect::<Vec<_>>()].concat());
        // A pid belongs to one container at a time.
        history.remember(Pid::from_raw(1000), &logs);
        assert_eq!(history.owner(Pid::from_raw(1000)), Some(&logs));
        assert_eq!(history.owner(Pid::from_raw(999)), Some(&proxy));
        history.forget(&logs);
        assert_eq!(history.owner(Pid::from_raw(1000)), None);
    }

    /// R6: a pid that another process has by now is never corrected. CRI means the container's, which is refused; a caller
    /// that has looked the pid up just now means that process.
    #[test]
    fn r6_a_pid_that_is_another_processs_by_now_is_not_corrected() {
        let [old, new] = [17, 99].map(Pid::from_raw);
        for caller in [Caller::Cri, Caller::Other] {
            assert_eq!(meaning(old, Some(new), |_| false, caller), Meaning::Live(new));
            assert_eq!(meaning(old, None, |_| false, caller), Meaning::Gone);
            assert_eq!(meaning(new, Some(new), |_| true, caller), Meaning::Itself);
        }
        for live in [Some(new), None] {
            assert_eq!(meaning(old, live, |_| true, Caller::Cri), Meaning::AnotherProcess);
            assert_eq!(meaning(old, live, |_| true, Caller::Other), Meaning::Itself);
        }
        assert!(is_alive(nix::unistd::getpid()));
        assert!(!is_alive(Pid::from_raw(i32::MAX)));
    }

    #[test]
    fn only_process_paths_are_read() {
        assert_eq!(process_path(Path::new("/proc/17/ns/pid")), Some((Pid::from_raw(17), "pid")));
        assert_eq!(process_path(Path::new("/run/netns/cni-1")), None);
        assert_eq!(process_path(Path::new("/proc/self/ns/net")), None);
        assert_eq!(process_path(Path::new("")), None);
    }
}
