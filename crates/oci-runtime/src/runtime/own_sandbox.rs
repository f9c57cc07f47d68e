//! The calls of a sandbox that podshim makes itself, in place of the OCI runtime's.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use cgroups::abandoned::remove_abandoned;
use cgroups::{Cgroup, CgroupDriver, FreezeState};
use nix::unistd::Pid;
use own_processes::{
    CgroupEntry, CgroupsPath, ChildSetup, Groups, MakeError, Record, SandboxRequest, SessionKeyring, barrier,
    end_scope, scope_at, understood,
};
use processes::Process;
use processes::reaper::{ExitSubscription, ExitWatch, is_our_child};
use thiserror::Error;
use threads::helper_thread;
use tokio::time::Instant;
use tracing::warn;

use super::call::DEATH_LIMIT;
use super::container::Container;
use super::error::{Operation, RuntimeError};
use super::launch::Launched;

/// What an Update may name.
const UPDATED: &str =
    "an Update of a sandbox changes cpu.shares, cpu.quota, cpu.period, memory.limit and pids.limit";

/// All that a thread needs to make one.
struct SandboxPlan {
    id: String,
    root: PathBuf,
    request: SandboxRequest,
    groups: Groups,
    cgroup: Option<Cgroup>,
    keyring: SessionKeyring,
}

/// Why a sandbox cannot be made.
#[derive(Debug, Error)]
enum PlanError {
    #[error("cannot make its control groups: {0}")]
    Groups(io::Error),
    #[error("cgroup {path} is frozen")]
    Frozen { path: String },
    #[error(transparent)]
    Process(#[from] MakeError),
    /// What the node's root has to do for it.
    #[error(transparent)]
    Help(io::Error),
}

impl SandboxPlan {
    /// Makes it in its groups.
    fn make(&self) -> Result<Pid, PlanError> {
        self.make_groups()?;
        let entrances = self.groups.entrances().map_err(PlanError::Groups)?;
        let setup = self.setup(&CgroupEntry::Groups(&entrances))?;
        Ok(setup.make(&AtomicI32::new(0))?)
    }

    fn setup(&self, entry: &CgroupEntry<'_>) -> Result<ChildSetup, MakeError> {
        ChildSetup::new(&self.request, &self.id, &self.root, entry, self.keyring)
    }

    /// Does for a process that waits what it cannot do itself.
    fn prepare(&self, pid: Pid) -> Result<(), PlanError> {
        self.make_groups()?;
        self.groups.put(pid).map_err(PlanError::Groups)?;
        self.request.prepare(pid).map_err(PlanError::Help)
    }

    /// A frozen one is refused, as the OCI runtime refuses it: what is made there would wait for the thaw, and this thread with it.
    fn make_groups(&self) -> Result<(), PlanError> {
        self.groups.make(self.request.limits()).map_err(PlanError::Groups)?;
        match self.cgroup.as_ref().is_some_and(|cgroup| cgroup.freeze_state() != FreezeState::Thawed) {
            true => Err(PlanError::Frozen { path: self.request.cgroups_path().path().to_owned() }),
            false => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests;

impl Container {
    pub(super) async fn create_sandbox(
        &self,
        request: &SandboxRequest,
        keyring: SessionKeyring,
    ) -> Result<Launched, RuntimeError> {
        // Before anything is made or recorded: what is in its groups is killed when it is deleted.
        let failed = |message: String| self.sandbox_error(Operation::Create, message);
        // On a thread: the table of mounts has a lock for which every mount of the node waits, and unmounts let it wait.
        let path = request.cgroups_path().path().to_owned();
        let found =
            helper_thread::run("groups", move || Ok((Groups::at(&path)?, Cgroup::at_path(&path).ok())));
        let (groups, cgroup) = found.await.map_err(|error| failed(error.to_string()))?;
        if let Some(group) = groups.occupied() {
            return Err(failed(format!("its control group {} has processes in it", group.display())));
        }
        let plan = SandboxPlan {
            id: self.id.to_string(),
            root: self.bundle.rootfs(),
            request: request.clone(),
            groups,
            cgroup,
            keyring,
        };
        let launched = match request.needs_help() {
            false => self.launch_sandbox(plan).await,
            true => self.launch_with_help(plan).await,
        };
        if launched.is_err()
            && let Err(error) = self.remove_sandbox(request.cgroups_path().path()).await
        {
            warn!(container = %self.id, %error, "the sandbox could not be made, and what was made of it cannot be removed");
        }
        launched
    }

    /// On a thread that waits for the child: its groups wait for the kernel's one lock of groups, its mounts for that of all mounts, both
    /// of which wait for a node's longest look at a path; and in a group with a small share of a busy processor thirty system calls take
    /// a second.
    async fn launch_sandbox(&self, plan: SandboxPlan) -> Result<Launched, RuntimeError> {
        let failed = |message: String| self.sandbox_error(Operation::Create, message);
        self.record_sandbox(&plan.request)?;
        let subscription = self.runtime.reaper.subscribe();
        let made = helper_thread::run("sandbox", move || Ok(plan.make()));
        let made = made.await.map_err(|error| failed(error.to_string()))?;
        let (process, exit) =
            self.adopt_sandbox(&subscription, made.map_err(|error| failed(error.to_string()))?)?;
        self.launched_sandbox(process, exit)
    }

    /// For a child that waits at a barrier, on a thread that waits for it.
    async fn launch_with_help(&self, plan: SandboxPlan) -> Result<Launched, RuntimeError> {
        let failed = |message: String| self.sandbox_error(Operation::Create, message);
        let kernel = |error: io::Error| failed(error.to_string());
        self.record_sandbox(&plan.request)?;
        let (mut barrier, end) = barrier().map_err(kernel)?;
        let setup = plan.setup(&CgroupEntry::Barrier(&end)).map_err(|error| failed(error.to_string()))?;
        let subscription = self.runtime.reaper.subscribe();
        let pid = Arc::new(AtomicI32::new(0));
        let made = helper_thread::run("sandbox", {
            let pid = pid.clone();
            move || {
                let made = setup.make(&pid);
                drop(end);
                Ok(made)
            }
        });
        let helped = async {
            if !barrier.has_arrived().await.map_err(kernel)? {
                // Then `made` says why.
                return Ok(());
            }
            let pid = Pid::from_raw(pid.load(Ordering::Acquire));
            // If it is killed meanwhile, its number stays its own: another process must not get into groups whose processes are killed
            // in the end.
            let _held = self.runtime.reaper.hold_pids();
            if !is_our_child(pid) {
                return Err(failed("its process was killed while it waited".to_owned()));
            }
            if let CgroupsPath::Scope(scope) = plan.request.cgroups_path() {
                let (limits, properties) = (plan.request.limits(), plan.request.properties());
                let started = scope.start(pid, &self.id, limits, properties, plan.groups.version()).await;
                started.map_err(|error| failed(error.to_string()))?;
            }
            // On a thread, as above.
            let prepared = helper_thread::run("groups", move || Ok(plan.prepare(pid)));
            prepared.await.map_err(kernel)?.map_err(|error| failed(error.to_string()))?;
            barrier.open().map_err(kernel)
        };
        // The child ends when `helped` has failed, for its barrier is gone then.
        let (made, helped) = tokio::join!(made, helped);
        helped?;
        // Of a pod with a user namespace it is a child of the one that waited.
        let pid = made.map_err(kernel)?.map_err(|error| failed(error.to_string()))?;
        let (process, exit) = self.adopt_sandbox(&subscription, pid)?;
        self.launched_sandbox(process, exit)
    }

    /// Before anything of it exists. Its root will be mounted on the bundle's.
    fn record_sandbox(&self, request: &SandboxRequest) -> Result<(), RuntimeError> {
        let failed =
            |step: &str, error: io::Error| self.sandbox_error(Operation::Create, format!("{step}: {error}"));
        self.record()
            .write(request.cgroups_path().path())
            .map_err(|error| failed("cannot record the sandbox", error))?;
        fs::create_dir_all(self.bundle.rootfs()).map_err(|error| failed("cannot make its root", error))
    }

    fn adopt_sandbox(
        &self,
        subscription: &ExitSubscription,
        pid: Pid,
    ) -> Result<(Process, ExitWatch), RuntimeError> {
        self.runtime.reaper.adopt(subscription, pid).map_err(|source| RuntimeError::Adopt {
            operation: Operation::Create,
            id: self.id.to_string(),
            pid,
            source,
        })
    }

    fn launched_sandbox(&self, process: Process, exit: ExitWatch) -> Result<Launched, RuntimeError> {
        fs::write(self.bundle.init_pid_path(), process.pid().to_string()).map_err(|error| {
            self.sandbox_error(Operation::Create, format!("cannot write its pid into the bundle: {error}"))
        })?;
        // It runs its program already.
        Ok(Launched { process, exit, runtime_init: None })
    }

    /// Ends what is left in its groups, and removes them.
    pub(super) async fn delete_sandbox(&self, cgroups_path: &str) -> Result<(), RuntimeError> {
        // The record goes before systemd is asked: containerd kills a `delete` after five seconds and calls no other, and systemd
        // notices by itself that a scope is empty.
        self.remove_sandbox(cgroups_path).await?;
        // A group of the other driver may have a scope's name.
        if self.runtime.cgroup_driver == CgroupDriver::Systemd
            && let Some(unit) = scope_at(cgroups_path)
        {
            end_scope(unit).await;
        }
        Ok(())
    }

    /// The same but for its scope, which after a failed create may be another caller's unit of that name.
    async fn remove_sandbox(&self, cgroups_path: &str) -> Result<(), RuntimeError> {
        let failed = |error: io::Error| self.sandbox_error(Operation::Delete, error.to_string());
        remove_abandoned(cgroups_path, Instant::now() + DEATH_LIMIT).await.map_err(failed)?;
        self.record().remove().map_err(failed)
    }

    /// The path of its groups if podshim made it, also another shim of podshim's.
    pub(super) fn recorded_sandbox(&self) -> Result<Option<String>, RuntimeError> {
        self.record().read().map_err(|error| self.sandbox_error(Operation::Delete, error.to_string()))
    }

    pub(super) async fn update_sandbox(
        &self,
        request: &SandboxRequest,
        resources: &[u8],
    ) -> Result<(), RuntimeError> {
        let failed = |reason: String| self.sandbox_error(Operation::Update, reason);
        let document = serde_json::from_slice(resources).map_err(|error| failed(error.to_string()))?;
        let limits = understood(&document).map_err(|error| failed(format!("{error}; {UPDATED}")))?;
        let groups = Groups::at(request.cgroups_path().path()).map_err(|error| failed(error.to_string()))?;
        // Before systemd writes its own, in whole hundredths.
        let of_group = groups.cpu_time();
        let limits = limits.beside(|| of_group);
        if let CgroupsPath::Scope(scope) = request.cgroups_path() {
            let limited = scope.limit(&limits, groups.version(), of_group).await;
            limited.map_err(|error| failed(error.to_string()))?;
        }
        // On a thread: a lower limit of memory makes the kernel reclaim some.
        let limited = helper_thread::run("limits", move || groups.limit(&limits));
        limited.await.map_err(|error| failed(error.to_string()))
    }

    /// As the OCI runtime answers for a program that the root file system has not.
    pub(super) fn refuse_exec(&self, process: &[u8]) -> RuntimeError {
        let process: serde_json::Value = serde_json::from_slice(process).unwrap_or_default();
        let program = process["args"][0].as_str().unwrap_or_default();
        let reason = match program.contains('/') {
            true => format!("stat {program}: no such file or directory"),
            false => "executable file not found in $PATH".to_owned(),
        };
        self.sandbox_error(
            Operation::Exec,
            format!("exec failed: unable to start container process: exec: {program:?}: {reason}"),
        )
    }

    /// The OCI runtime checkpoints what it has made.
    pub(super) fn refuse_checkpoint(&self) -> RuntimeError {
        let message = "podshim makes this sandbox itself and cannot checkpoint it: checkpoint the pod's containers, or set \
                       sandbox = \"runtime\" in the node's file";
        self.sandbox_error(Operation::Checkpoint, message.to_owned())
    }

    pub(super) async fn freeze_sandbox(
        &self,
        cgroup: Option<&Cgroup>,
        operation: Operation,
    ) -> Result<(), RuntimeError> {
        let failed = |error: io::Error| self.sandbox_error(operation, error.to_string());
        let Some(cgroup) = cgroup else {
            return Err(failed(io::Error::new(io::ErrorKind::NotFound, "it has no cgroup any more")));
        };
        match operation {
            Operation::Pause => cgroup.freeze_until_thaw().await.map_err(failed),
            _ => cgroup.thaw().map_err(failed),
        }
    }

    pub(super) fn sandbox_error(&self, operation: Operation, message: String) -> RuntimeError {
        RuntimeError::Failed { operation, id: self.id.to_string(), message }
    }

    fn record(&self) -> Record {
        Record::of(&self.runtime.root, &self.id)
    }
}
