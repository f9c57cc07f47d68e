//! What the owner holds for a container and its execs: everything that is not a decision.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use oci_runtime::bundle::Bundle;
use oci_runtime::cgroup::{Cgroup, Stats};
use oci_runtime::console::{Console, TerminalSize};
use oci_runtime::probe::FileLooks;
use oci_runtime::process::Process;
use oci_runtime::runtime::{CgroupDriver, Container};
use oci_runtime::spec::Spec;
use oci_runtime::stdio::Stdio;
use pod_lifecycle::{ExecId, Failure, RequestId, Target};
use serde_json::Value;

use crate::context::PodContext;
use crate::details::{CreateDetails, ExecDetails};
use crate::error::failure;
use crate::incarnation::{Incarnation, LastIncarnation};
use crate::launch::Launcher;
use crate::node_shutdown;
use crate::readiness::NotifyListener;

/// The kubelet's name for the file in which a container leaves its last words.
const TERMINATION_MESSAGE_PATH: &str = "io.kubernetes.container.terminationMessagePath";

/// One container, from its Create to its Delete.
#[derive(Debug)]
pub(crate) struct Resources {
    pub(crate) runtime: Container,
    pub(crate) context: PodContext,
    pub(crate) details: Rc<CreateDetails>,
    /// The unit that systemd knows it by, under its cgroup driver (N5).
    pub(crate) scope: Option<String>,
    /// The host file behind the termination message, if there is one (J9).
    pub(crate) termination_message: Option<PathBuf>,
    /// Open from the create to the delete, over all incarnations (R6).
    pub(crate) stdio: Option<Stdio>,
    /// The process of now; none while it is replaced.
    pub(crate) incarnation: Option<Incarnation>,
    /// What outlives an incarnation: the runtime has a container to delete, its cgroup has the last numbers.
    pub(crate) last: Option<LastIncarnation>,
    /// The last numbers that were read, for when the cgroup is gone.
    pub(crate) stats: Option<Stats>,
    pub(crate) rootfs_use: RootfsUse,
    /// What the caller of the last Delete waits at most.
    pub(crate) delete_limit: Option<Duration>,
    /// The last limits a caller set, for the next incarnation (R6).
    pub(crate) update: Option<Rc<[u8]>>,
    pub(crate) size: Option<TerminalSize>,
    pub(crate) execs: BTreeMap<ExecId, ExecResources>,
    /// The Delete requests so far: whether one of their callers is still there decides what a delete's end
    /// means (trap 12).
    pub(crate) deletes: Vec<RequestId>,
    /// The container's own process as JSON, for probes and hooks that run another command as the same user.
    pub(crate) process_spec: Option<Rc<serde_json::Value>>,
    pub(crate) file_looks: FileLooks,
    /// For a `notify` gate.
    pub(crate) notify: Option<NotifyListener>,
}

/// Until when a container's rootfs must stay mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RootfsUse {
    /// No program needs it: it may be unmounted while the runtime deletes the container. The kernel takes as long for the one
    /// (it writes out what is below) as the runtime for the other.
    UntilEnd,
    /// The runtime calls poststop hooks when it deletes the container, and they may look into it.
    UntilDeleted,
}

/// One exec.
#[derive(Debug)]
pub(crate) struct ExecResources {
    pub(crate) details: Rc<ExecDetails>,
    pub(crate) stdio: Option<Stdio>,
    pub(crate) process: Option<Rc<Process>>,
    pub(crate) console: Option<Console>,
    pub(crate) size: Option<TerminalSize>,
}

impl ExecResources {
    pub(crate) fn new(details: ExecDetails) -> Self {
        Self { details: Rc::new(details), stdio: None, process: None, console: None, size: None }
    }
}

impl Resources {
    pub(crate) fn new(runtime: Container, context: PodContext, details: CreateDetails, spec: &Spec) -> Self {
        let has_poststop = spec.hooks.as_ref().is_some_and(|hooks| !hooks.poststop.is_empty());
        let message = spec.annotations.get(TERMINATION_MESSAGE_PATH).map(PathBuf::from);
        Self {
            runtime,
            context,
            scope: match details.options.cgroup_driver_for(spec) {
                CgroupDriver::Systemd => node_shutdown::scope_of(spec),
                CgroupDriver::Cgroupfs => None,
            },
            termination_message: message.and_then(|path| spec.bind_source(&path).map(Into::into)),
            details: Rc::new(details),
            stdio: None,
            incarnation: None,
            last: None,
            stats: None,
            rootfs_use: if has_poststop { RootfsUse::UntilDeleted } else { RootfsUse::UntilEnd },
            delete_limit: None,
            update: None,
            size: None,
            execs: BTreeMap::new(),
            deletes: Vec::new(),
            process_spec: None,
            file_looks: FileLooks::default(),
            notify: None,
        }
    }

    /// Keeps an exec's details until the pod refuses or removes it. `false`: there is one of that id already.
    pub(crate) fn add_exec(&mut self, id: &ExecId, details: ExecDetails) -> bool {
        let is_new = !self.execs.contains_key(id);
        if is_new {
            self.execs.insert(id.clone(), ExecResources::new(details));
        }
        is_new
    }

    pub(crate) fn remove_exec(&mut self, id: &ExecId) {
        self.execs.remove(id);
    }

    /// A caller asks for the delete of the container, or of one of its execs, and waits for at most `limit`.
    pub(crate) fn delete_requested(&mut self, target: &Target, request: RequestId, limit: Option<Duration>) {
        self.delete_limit = limit;
        if target.exec.is_none() {
            self.deletes.push(request);
        }
    }

    pub(crate) fn launcher(&self) -> Launcher {
        Launcher {
            runtime: self.runtime.clone(),
            details: self.details.clone(),
            context: self.context.clone(),
        }
    }

    pub(crate) fn bundle(&self) -> &Bundle {
        self.runtime.bundle()
    }

    pub(crate) fn process(&self) -> Option<&Rc<Process>> {
        self.incarnation.as_ref().map(Incarnation::process)
    }

    /// The numbers of now, or the last ones if the cgroup is gone; none if it never had one.
    pub(crate) fn read_stats(&mut self) -> Option<&Stats> {
        if let Some(cgroup) = self.cgroup().filter(|cgroup| cgroup.exists()) {
            self.stats = Some(cgroup.stats());
        }
        self.stats.as_ref()
    }

    /// systemd removes a scope when its last process ends, on one processor before any other process hears of that. So there
    /// are numbers of its beginning, and of its end if it is still there. Other groups stay until the runtime's delete.
    pub(crate) fn read_stats_of_scope(&mut self) {
        if self.scope.is_some() {
            self.read_stats();
        }
    }

    pub(crate) fn cgroup(&self) -> Option<&Rc<Cgroup>> {
        self.last.as_ref()?.cgroup.as_ref()
    }

    /// The container's own process with another command line: same user, environment and restrictions (DESIGN §6).
    pub(crate) fn process_with(&mut self, command: &[String]) -> Result<Vec<u8>, Failure> {
        if self.process_spec.is_none() {
            let path = self.bundle().path().join("config.json");
            let spec = std::fs::read(&path).map_err(failure)?;
            let mut spec: Value = serde_json::from_slice(&spec).map_err(failure)?;
            self.process_spec = Some(Rc::new(spec["process"].take()));
        }
        let mut process = self.process_spec.as_deref().cloned().unwrap_or_default();
        process["args"] = command.into();
        process["terminal"] = false.into();
        serde_json::to_vec(&process).map_err(failure)
    }
}
