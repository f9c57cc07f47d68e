//! The Sandbox API's requests, as what they are for the pod: its sandbox is created, started, killed and deleted like pause.
//!
//! Owns that translation, and the operations of a sandbox that has no process (CONTRACT §5). Which containers end before the
//! sandbox, and when, is `pod-lifecycle`'s decision (K13).

use cgroups::Cgroup;
use nix::unistd::Pid;
use node_state::entry::Entry;
use oci_runtime::bundle::Bundle;
use own_processes::slice_path;
use pod_lifecycle::{ContainerId, Operation, Outcome, Refusal, RefusalKind, Target, WallTime};
use pod_spec::Signal;
use processes::reaper;
use protobuf::well_known_types::any::Any;
use tokio::time::Instant;
use tracing::warn;

use crate::clock::system_time;
use crate::command::SandboxStatus;
use crate::context::sandbox_directory;
use crate::details::CreateDetails;
use crate::error::{ServiceError, failure};
use crate::metrics;
use crate::node::NodeFile;
use crate::options::RuntimeOptions;
use crate::pod_sandbox::{PodSandbox, SandboxDetails};
use crate::report::{CompletionReporter, OperationResult, Removal, Report};
use crate::spec_draft::SpecDraft;
use crate::state::State;
use crate::streams::StreamAddresses;

/// CreateSandbox: what the containers share is made here, and the rest is a Create as of any container.
pub(crate) fn create(
    state: &mut State,
    id: &ContainerId,
    details: &SandboxDetails,
    node: &NodeFile<'_>,
) -> Result<(CreateDetails, SpecDraft), ServiceError> {
    let invalid = |message: String| ServiceError::Invalid { container: id.to_string(), message };
    if state.sandbox().is_some() || state.has_container(id) {
        let message = format!("sandbox {id} already exists");
        return Err(Refusal { kind: RefusalKind::AlreadyExists, message }.into());
    }
    if id.as_str() != state.identity.id {
        return Err(invalid(format!("this shim serves the pod {:?}", state.identity.id)));
    }
    // `start` has written them: they come with no other request.
    let bundle = Bundle::new(&details.bundle);
    let options = RuntimeOptions::load(&bundle).map_err(|error| invalid(error.to_string()))?;
    let place = sandbox_directory(&state.context.state_directory);
    let sandbox = PodSandbox::make(id, &place, details, &default_sysctls(node))
        .map_err(|error| invalid(error.to_string()))?;
    let spec = match SpecDraft::new(&bundle, sandbox.spec().clone()) {
        Ok(spec) => spec,
        Err(error) => {
            sandbox.discard();
            return Err(invalid(error.to_string()));
        }
    };
    name_entry(state, &sandbox);
    state.sandbox_made(sandbox);
    let details = CreateDetails {
        bundle: details.bundle.clone(),
        rootfs: Vec::new(),
        streams: StreamAddresses::default(),
        options,
        checkpoint: None,
    };
    Ok((details, spec))
}

/// A mistake in the node's file is no reason against a pod without annotations (S1).
fn default_sysctls(node: &NodeFile<'_>) -> Vec<(String, String)> {
    match node.node() {
        Ok(node) => node.sandbox_sysctls().to_vec(),
        Err(mistake) => {
            warn!(%mistake, "the node's default sysctls are not set");
            Vec::new()
        }
    }
}

/// `start` wrote the entry before any request had named the pod.
fn name_entry(state: &State, sandbox: &PodSandbox) {
    let directory = &*state.context.state_directory;
    let Some(entry) = Entry::read_from(directory) else { return };
    let config = sandbox.config();
    let annotations = config.annotations.iter().map(|(key, value)| (key.as_str(), value.as_str()));
    let entry = Entry {
        pod_name: config.name.clone(),
        pod_namespace: config.namespace.clone(),
        drain_priority: pod_spec::drain_priority(annotations),
        ..entry
    };
    if let Err(error) = entry.write_to(directory) {
        warn!(%error, "podshim ps does not know the pod's name");
    }
}

/// An operation of a sandbox without a process: its namespaces exist since its Create was admitted.
pub(crate) fn run(state: &State, id: &ContainerId, operation: &Operation, done: CompletionReporter) {
    match operation {
        // CONTRACT §5: pid 0 is none.
        Operation::Create => done.finish(Outcome::Process { pid: 0 }, OperationResult::Nothing),
        Operation::Start | Operation::KillRemaining => done.finish(Outcome::Ok, OperationResult::Nothing),
        Operation::Remove => {
            let bundle = state.container(id).map(|resources| resources.bundle());
            if let Some(Err(error)) = bundle.map(Bundle::mark_removed) {
                warn!(container = %id, %error, "cannot mark the bundle as removed");
            }
            done.finish(Outcome::Ok, OperationResult::Removed(Removal::Complete));
        }
        _ => done.fail(failure(format!("sandbox {id} has no process"))),
    }
}

/// A signal to a sandbox without a process ends it as it ends pause.
pub(crate) fn signal(state: &State, id: &ContainerId, signal: Signal) {
    let code = match signal {
        Signal::KILL => 137,
        Signal::TERM | Signal::INT => 0,
        _ => return,
    };
    let exit = reaper::Exit { code, signal: None, at: system_time() };
    // If the owner has ended, so has the sandbox.
    let _ = state.reports.send(Report::Exited { target: Target::init(id.clone()), exit });
}

/// Process 1 of the pod's shared pid namespace, while it lives.
pub(crate) fn process_1(state: &State) -> Option<Pid> {
    let id = state.sandbox()?.id();
    state.container(id).filter(|sandbox| !sandbox.runtime().is_pins())?;
    state.live_pid(id)
}

/// SandboxStatus.
pub(crate) fn status(state: &State, id: &ContainerId) -> Result<SandboxStatus, ServiceError> {
    let Some(sandbox) = state.sandbox().filter(|sandbox| sandbox.is(id)) else {
        return Err(not_found(id));
    };
    let view = state.pod().view(&Target::init(id.clone()))?;
    Ok(SandboxStatus {
        status: view.status,
        created_at: sandbox.created_at(),
        exited_at: view.exit.map_or(WallTime::default(), |exit| exit.at),
        info: sandbox.info(view.pid, view.status),
        spec: sandbox.spec().to_string().into_bytes(),
    })
}

/// SandboxMetrics: those of the pod's cgroup, which the kubelet has made.
pub(crate) fn metrics(state: &State, id: &ContainerId) -> Result<Any, ServiceError> {
    let Some(sandbox) = state.sandbox().filter(|sandbox| sandbox.is(id)) else {
        return Err(not_found(id));
    };
    let parent = sandbox.config().cgroup_parent.as_str();
    // The kubelet names the whole path, also of a slice; crictl's users the slice alone.
    let path = slice_path(parent).unwrap_or_else(|| parent.to_owned());
    let Some(cgroup) = Cgroup::at_path(&path).ok().filter(Cgroup::exists) else {
        let message = format!("sandbox {id} has no cgroup {parent:?}");
        return Err(Refusal { kind: RefusalKind::FailedPrecondition, message }.into());
    };
    Ok(metrics::to_any(&cgroup.stats()))
}

/// When a sandbox is removed that no caller has started.
pub(crate) fn forgotten_at(state: &State) -> Option<Instant> {
    let sandbox = state.sandbox()?;
    let view = state.pod().view(&Target::init(sandbox.id().clone())).ok()?;
    sandbox.forgotten_at(&view)
}

/// Whether the sandbox exists and no caller has started it.
pub(crate) fn is_unstarted(state: &State) -> bool {
    forgotten_at(state).is_some()
}

fn not_found(id: &ContainerId) -> ServiceError {
    Refusal { kind: RefusalKind::NotFound, message: format!("sandbox {id} not found") }.into()
}
