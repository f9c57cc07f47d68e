//! Ends a group whose shim is dead (N3): in the plan's order as far as time allows, and completely in any case.
//!
//! Owns what happens to its containers. Decides nothing of a pod whose shim lives.

use std::cell::{LazyCell, OnceCell};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::time::{Duration, SystemTime};

use cgroups::Cgroup;
use cgroups::abandoned::remove_abandoned;
use mounts::unmount_rootfs;
use node_state::paths::NODE_FILE;
use oci_runtime::bundle::Bundle;
use oci_runtime::runtime::{Container, DeleteMode};
use own_processes::is_recorded;
use pod_spec::{Node, Plan, Role, kruise};
use processes::SignalNumber;
use processes::reaper::Reaper;
use shim_service::cri::{CONTAINER_NAME, ContainerType, container_type};
use shim_service::node;
use shim_service::options::{OptionsError, RuntimeOptions};
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::{Instant, timeout_at};

use super::exit::{now, unseen_exit};
use super::orphan::Orphan;
use crate::paths::SocketAddress;

/// How long mains may take to end on their own.
const MAINS_LIMIT: Duration = Duration::from_millis(1500);
/// How long the runtime may take to report a container's init. It usually takes milliseconds; a runtime that hangs must
/// not use up the time for the killing.
const STATE_LIMIT: Duration = Duration::from_secs(1);
/// Time that is reserved to clean up, without the runtime, what its delete has left.
const DELETE_RESERVE: Duration = Duration::from_millis(500);
/// Time after the deadline for the removal of podshim's own sandbox. It comes last and takes milliseconds, and no later `delete`
/// would finish it; containerd's own limit leaves a second.
const OWN_SANDBOX_LIMIT: Duration = Duration::from_millis(500);
/// Time that is reserved to kill, delete and unmount after the last container was asked to end.
const CLEANUP_RESERVE: Duration = Duration::from_millis(1200);

/// containerd's folders of bundles: the containers', and those of the Sandbox API's sandboxes.
const BUNDLES: [&str; 2] = ["io.containerd.runtime.v2.task", "io.containerd.sandbox.controller.v1.shim"];

/// When a container of the group is asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Turn {
    /// First and all together: mains, inits, and containers that the plan does not name.
    First,
    /// After the first, the last entry of the plan first.
    Sidecar {
        /// The entry in the plan.
        entry: usize,
    },
    /// Killed after all others are gone: the sandbox holds their namespaces.
    Sandbox,
}

/// One container of the group.
#[derive(Debug)]
pub(super) struct Member {
    pub(super) id: String,
    pub(super) name: String,
    pub(super) role: Option<Role>,
    pub(super) turn: Turn,
    pub(super) bundle: Bundle,
    /// Whether its pod has a plan. Without one, nothing but its end is required, as with containerd's own shim.
    pub(super) is_planned: bool,
    options: RuntimeOptions,
    /// Why the container's own options could not be read. `options` then has the defaults.
    options_problem: Option<OptionsError>,
}

/// The containers next to the bundle of `own_id` whose bundles contain the shim's address, and that container itself,
/// without those of which nothing is left. containerd 1.6 to 2.x run `delete` after each pod's regular end too: asking
/// the runtime again then would cost a tenth of `ctr run`.
pub(super) fn members(address: &SocketAddress, own: &Bundle, own_id: &str, namespace: &str) -> Vec<Member> {
    let mut bundles = BTreeMap::new();
    bundles.insert(own_id.to_owned(), own.path().to_owned());
    let folders = own.path().parent().into_iter().flat_map(folders_of_a_pod);
    let siblings = folders.filter_map(|folder| fs::read_dir(folder).ok()).flatten();
    for entry in siblings.flatten() {
        // containerd is removing the bundles whose names start with a dot.
        let Ok(id) = entry.file_name().into_string() else { continue };
        if !id.starts_with('.') && SocketAddress::in_bundle(&entry.path()).as_ref() == Some(address) {
            bundles.entry(id).or_insert_with(|| entry.path());
        }
    }
    // The node's file is read once for all of them, and only for a pod with OpenKruise's marks.
    let node_file = LazyCell::new(|| node::read(Path::new(NODE_FILE)).ok());
    bundles
        .into_iter()
        .map(|(id, path)| {
            let bundle = Bundle::new(path);
            let annotations = bundle.read_spec().map(|spec| spec.annotations).unwrap_or_default();
            let plan = plan_of(&annotations, || node_file.as_ref());
            Member::new(id, bundle, &annotations, plan.as_ref())
        })
        .filter(|member| {
            let is_asked_for = member.id == own_id && !member.bundle.is_removed();
            is_asked_for || member.is_known(namespace)
        })
        .collect()
}

/// Where the bundles of a pod are, by where one of them is. containerd 2.x keeps the sandboxes of the Sandbox API apart from the
/// containers (CONTRACT §5): `delete` of either has to end both, in one order.
fn folders_of_a_pod(folder: &Path) -> Vec<PathBuf> {
    let mut folders = vec![folder.to_owned()];
    let (kind, namespace) = (folder.parent(), folder.file_name());
    if let (Some(kind), Some(namespace)) = (kind, namespace)
        && let Some(known) = BUNDLES.iter().position(|name| kind.file_name() == Some(OsStr::new(name)))
    {
        folders.push(kind.with_file_name(BUNDLES[1 - known]).join(namespace));
    }
    folders
}

impl Member {
    fn new(id: String, bundle: Bundle, annotations: &BTreeMap<String, String>, plan: Option<&Plan>) -> Self {
        let name = annotations.get(CONTAINER_NAME).unwrap_or(&id).clone();
        let role = plan.into_iter().flat_map(|plan| &plan.members).find(|member| member.name == name);
        let turn = match role.map(|member| (member.role, member.entry)) {
            _ if container_type(annotations) == Some(ContainerType::Sandbox) => Turn::Sandbox,
            Some((Role::Sidecar, entry)) => Turn::Sidecar { entry },
            Some((Role::Init | Role::Main, _)) | None => Turn::First,
        };
        let is_planned = plan.is_some();
        let (options, options_problem) = match RuntimeOptions::load(&bundle) {
            Ok(options) => (options, None),
            Err(error) => (RuntimeOptions::default(), Some(error)),
        };
        let by_star = plan.is_some_and(|plan| plan.makes_main_of(&name));
        let role = role.map(|member| member.role).or_else(|| by_star.then_some(Role::Main));
        Self { id, name, role, turn, bundle, is_planned, options, options_problem }
    }

    /// Whether there is something to end: the runtime knows it, or podshim has made it.
    fn is_known(&self, namespace: &str) -> bool {
        self.is_known_to_its_runtime(namespace) || self.is_own_sandbox(namespace)
    }

    /// Whether podshim has made it, also another shim of podshim's: then its removal needs no OCI runtime.
    fn is_own_sandbox(&self, namespace: &str) -> bool {
        is_recorded(&self.options.runtime_root(namespace), &self.id)
    }

    /// runc and crun keep a directory for each container that they know.
    fn is_known_to_its_runtime(&self, namespace: &str) -> bool {
        self.options.runtime_root(namespace).join(&self.id).exists()
    }
}

/// The plan of the pod that has these annotations. Create refuses a plan that cannot be parsed, or that the node's file
/// forbids: where there is none, there is no order to keep.
fn plan_of<'a>(
    annotations: &BTreeMap<String, String>,
    node_file: impl FnOnce() -> Option<&'a Node>,
) -> Option<Plan> {
    let all = || annotations.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let own = pod_spec::parse(all()).ok()?.plan;
    if own.is_some() || !all().any(|(key, _)| kruise::is_mark(key)) {
        return own;
    }
    // S12: the file says whether OpenKruise's marks count.
    node_file()?.parse_pod(all()).ok()?.plan
}

/// A member, with what the clean-up needs.
struct Target {
    member: Member,
    container: Container,
    is_own_sandbox: bool,
    cgroups_path: Option<String>,
    /// Its init, if it lives and the runtime could name it.
    init: Option<Orphan>,
    /// The groups of that init.
    cgroup: Option<Rc<Cgroup>>,
    /// When init ended, once it has.
    ended_at: Rc<OnceCell<SystemTime>>,
}

/// N3, N10: ends every member by `deadline`, in order as far as the time allows. Returns what failed.
///
/// # Errors
///
/// The system's error if no process could be run at all.
pub(super) async fn end(members: Vec<Member>, namespace: &str, deadline: Instant) -> io::Result<Vec<String>> {
    let reaper = Reaper::start()?;
    let mut problems = Vec::new();
    let mut targets = find_inits(members, namespace, &reaper, deadline).await;
    targets.sort_by_key(|target| target.member.turn);
    if targets.iter().any(|target| target.member.is_planned) {
        ask_in_order(&targets, deadline - CLEANUP_RESERVE).await;
    }
    // All at once, no matter how far the order got; the sandbox last, because it holds the namespaces of the others.
    let (sandboxes, others): (Vec<_>, Vec<_>) =
        targets.into_iter().partition(|target| target.member.turn == Turn::Sandbox);
    for turn in [others, sandboxes] {
        for target in &turn {
            target.signal(SignalNumber::KILL);
        }
        let removals: Vec<_> = turn.into_iter().map(|target| spawn_local(target.remove(deadline))).collect();
        problems.extend(join(removals).await.into_iter().flatten());
    }
    Ok(problems)
}

/// Finds the containers' inits, all at once. The runtime is asked because it compares start times: the pid in the
/// bundle's file may belong to another process by now.
async fn find_inits(
    members: Vec<Member>,
    namespace: &str,
    reaper: &Reaper,
    deadline: Instant,
) -> Vec<Target> {
    let searches: Vec<_> = members
        .into_iter()
        .map(|member| {
            let known = member.is_known_to_its_runtime(namespace);
            let is_own_sandbox = member.is_own_sandbox(namespace);
            let spec = member.bundle.read_spec().unwrap_or_default();
            let runtime = Rc::new(member.options.runtime(reaper.clone(), namespace, &spec));
            let cgroups_path = spec.linux.and_then(|linux| linux.cgroups_path);
            let container =
                runtime.container(&member.id, member.bundle.clone()).in_groups(cgroups_path.clone());
            spawn_local(async move {
                let init = match known {
                    true => timeout_at(deadline.min(Instant::now() + STATE_LIMIT), live_init(&container))
                        .await
                        .ok()
                        .flatten(),
                    false => None,
                };
                let ended_at = init.as_ref().map(Orphan::watch).unwrap_or_default();
                let pid = container.bundle().read_init_pid().ok();
                let cgroup = init.as_ref().zip(pid).and_then(|(init, pid)| init.cgroup(pid)).map(Rc::new);
                Target { member, container, is_own_sandbox, cgroups_path, init, cgroup, ended_at }
            })
        })
        .collect();
    join(searches).await
}

/// Opens the pidfd first and asks the runtime then: if the answer still names the pid, it is about this process.
async fn live_init(container: &Container) -> Option<Orphan> {
    let pid = container.bundle().read_init_pid().ok()?;
    let orphan = Orphan::open(pid).ok()?;
    let state = container.state().await.ok()?;
    (state.pid == pid.as_raw()).then_some(orphan)
}

/// Sends TERM to the mains, then to the sidecars entry by entry, from the last; to each when those before have ended or
/// their time is over.
async fn ask_in_order(targets: &[Target], deadline: Instant) {
    let (first, sidecars): (Vec<_>, Vec<_>) = targets
        .iter()
        .filter(|target| target.member.turn != Turn::Sandbox)
        .partition(|target| target.member.turn == Turn::First);
    ask(&first, deadline.min(Instant::now() + MAINS_LIMIT)).await;
    // Sorted by entry, so equal turns are adjacent.
    let entries: Vec<_> = sidecars.chunk_by(|a, b| a.member.turn == b.member.turn).rev().collect();
    let mut waiting = entries.len() as u32;
    for entry in entries {
        let share = deadline.saturating_duration_since(Instant::now()) / waiting;
        ask(entry, Instant::now() + share).await;
        waiting -= 1;
    }
}

async fn ask(targets: &[&Target], deadline: Instant) {
    for target in targets {
        target.signal(SignalNumber::TERM);
    }
    for target in targets {
        // A timeout is no problem: the kill follows.
        let _ = timeout_at(deadline, target.exited()).await;
    }
}

impl Target {
    /// K17 holds here for every signal: there is no time to wait for a thaw.
    fn signal(&self, signal: SignalNumber) {
        let Some(init) = &self.init else { return };
        init.signal(signal);
        if let Some(cgroup) = self.cgroup.clone() {
            let ended_at = self.ended_at.clone();
            spawn_local(async move { cgroup.thaw_while(|| ended_at.get().is_none()).await });
        }
    }

    /// Resolves when init has ended. Its time is taken at once: the next one is signalled after that, and must not seem to
    /// have ended first.
    async fn exited(&self) {
        if let Some(init) = &self.init {
            init.exited().await;
            let _ = self.ended_at.set(now());
        }
    }

    /// Removes the container from its runtime, unmounts its rootfs, and records its end if no record exists.
    async fn remove(self, deadline: Instant) -> Vec<String> {
        let mut problems = Vec::new();
        let mut note = |what: &str, error: String| {
            problems.push(format!("container {}: {what}: {error}", self.member.id))
        };
        if let Some(error) = &self.member.options_problem {
            note("runtime options", error.to_string());
        }
        let limit = match self.is_own_sandbox {
            true => deadline + OWN_SANDBOX_LIMIT,
            false => deadline - DELETE_RESERVE,
        };
        match timeout_at(limit, self.container.delete(DeleteMode::Force)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => note("delete", error.to_string()),
            Err(_) => note("delete", "took too long".to_owned()),
        }
        if let Some(path) = &self.cgroups_path
            && let Err(error) = remove_abandoned(path, deadline).await
        {
            note("cgroup", error.to_string());
        }
        match timeout_at(deadline, unmount_rootfs(&self.member.bundle.rootfs())).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => note("unmount", error.to_string()),
            Err(_) => note("unmount", "took too long".to_owned()),
        }
        if let (Ok(None), Ok(pid)) = (self.member.bundle.read_exit(), self.member.bundle.read_init_pid()) {
            let exit = unseen_exit(pid, self.ended_at.get().copied().unwrap_or_else(now));
            if let Err(error) = self.member.bundle.write_exit(&exit) {
                note("exit record", error.to_string());
            }
        }
        problems
    }
}

/// Returns the results of the tasks, in their order. A task that panicked has none: the process aborts or the test
/// fails.
async fn join<T>(tasks: Vec<JoinHandle<T>>) -> Vec<T> {
    let mut results = Vec::with_capacity(tasks.len());
    for task in tasks {
        results.extend(task.await);
    }
    results
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CONTRACT §5: the first `delete` after a shim's death ends the pod, whichever bundle it is for.
    #[test]
    fn the_bundles_of_a_sandbox_and_its_containers_are_found_from_both() {
        let [tasks, sandboxes] = BUNDLES.map(|kind| Path::new("/run/c").join(kind).join("k8s.io"));
        assert_eq!(folders_of_a_pod(&tasks), [tasks.clone(), sandboxes.clone()]);
        assert_eq!(folders_of_a_pod(&sandboxes), [sandboxes, tasks]);
        assert_eq!(folders_of_a_pod(Path::new("/tmp/bundles")), [Path::new("/tmp/bundles")]);
    }
}
