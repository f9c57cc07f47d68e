//! A Create request, from containerd's call to the request that the pod gets.
//!
//! Owns the checks before that: whether the node is being drained, whether the container belongs to this pod, its annotations,
//! its namespaces and its runtime options. Never decides whether and when a process is created: `pod-lifecycle` does.

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::rc::Rc;

use oci_runtime::bundle::Bundle;
use oci_runtime::runtime::Maker;
use own_processes::{NotUnderstood, RUNTIMES, SandboxRequest};
use pod_lifecycle::{ContainerId, ContainerSpec, Refusal, RefusalKind, TaskKind};
use pod_spec::{InvalidPlan, Parsed, Plan, SandboxMaker, kruise};
use thiserror::Error;
use tracing::{info, warn};

use crate::cri::{self, SANDBOX_ID};
use crate::details::CreateDetails;
use crate::error::ServiceError;
use crate::names::names;
use crate::node::{NodeFile, NodeFileError};
use crate::node_shutdown;
use crate::pod_sandbox::error::SandboxError;
use crate::pod_sandbox::{self, PodSandbox};
use crate::resources::Resources;
use crate::sandbox_requests;
use crate::shared_namespaces;
use crate::spec_draft::SpecDraft;
use crate::state::State;

/// Where a new container's spec is.
pub(crate) enum SpecSource {
    /// In its bundle.
    Bundle,
    /// podshim's own, of a sandbox of the Sandbox API.
    Own(Box<SpecDraft>),
}

/// Checks a new container and keeps its resources. Returns what the pod needs to know of it.
pub(crate) fn admit(
    state: &mut State,
    id: &ContainerId,
    details: CreateDetails,
    (spec, node): (SpecSource, &NodeFile<'_>),
) -> Result<ContainerSpec, ServiceError> {
    if state.has_container(id) {
        let message = format!("container {id} already exists");
        return Err(Refusal { kind: RefusalKind::AlreadyExists, message }.into());
    }
    // N7.
    let file = &state.context.draining_file;
    if node_shutdown::is_draining(file) {
        return Err(ServiceError::Draining { container: id.to_string(), file: file.display().to_string() });
    }
    state.create_requested();
    let (resources, spec) = prepare(state, id, details, (spec, node))?;
    names().add_container(id.as_str(), &spec.name);
    state.created_names.add(&spec.name, spec.kubelet_type);
    state.add_container(id.clone(), resources);
    Ok(spec)
}

/// Drops a container's resources if the pod has refused it.
pub(crate) fn drop_if_refused(state: &mut State, id: &ContainerId) {
    if !state.pod().containers().any(|known| known == id) {
        state.forget(id);
        names().remove_container(id.as_str());
    }
}

fn prepare(
    state: &mut State,
    id: &ContainerId,
    mut details: CreateDetails,
    (spec, node): (SpecSource, &NodeFile<'_>),
) -> Result<(Resources, ContainerSpec), ServiceError> {
    let invalid = |error: &dyn StdError| ServiceError::Invalid {
        container: id.to_string(),
        message: error.to_string(),
    };
    let bundle = Bundle::new(&details.bundle);
    let mut draft = match spec {
        SpecSource::Bundle => SpecDraft::read(&bundle).map_err(|error| invalid(&error))?,
        SpecSource::Own(draft) => *draft,
    };
    cri::membership(id, &draft.spec().annotations, &state.identity.id).map_err(|error| invalid(&error))?;
    if let Some(sandbox) = state.sandbox().filter(|sandbox| !sandbox.is(id)) {
        let process_1 = sandbox_requests::process_1(state);
        draft = sandbox.adapt(draft, process_1).map_err(|error| invalid(&error))?;
    }
    pod_sandbox::refuse_no_process(draft.spec()).map_err(|error| invalid(&error))?;
    let annotations = &draft.spec().annotations;
    state.identity.learn(annotations);
    state.restart_requests.learn(annotations);
    names().learn_pod(&state.identity.pod_namespace, &state.identity.pod_name);
    let plan = plan_in(state, id, annotations, node).map_err(|error| invalid(&error))?;
    draft = shared_namespaces::join_live(&state.pids, |id| state.live_pid(id), id, draft)?;
    if let Some(sandbox) = draft
        .spec()
        .annotations
        .get(SANDBOX_ID)
        .and_then(|id| state.container(&ContainerId::from(id.as_str())))
    {
        details.options = details.options.with_runtime_of(&sandbox.details().options);
    }
    if details.options.binary_name.is_none() {
        details.options.binary_name = state.oci_runtime_of_node(node).map(str::to_owned);
    }
    // `delete` must call the same runtime, even when no shim is left that knows which.
    details.options.save(&bundle).map_err(|error| invalid(&error))?;
    let spec = draft.spec();
    let runtime = Rc::new(details.options.runtime(state.reaper.clone(), &state.context.namespace, spec));
    let mut core = cri::container_spec(id, spec, details.origin(), plan);
    let groups = spec.linux.as_ref().and_then(|linux| linux.cgroups_path.clone());
    let container = runtime.container(id.as_str(), bundle).in_groups(groups);
    let sandbox = state.sandbox().filter(|sandbox| sandbox.is(id));
    let maker = maker(sandbox, core.kind, node, &details, &mut draft).map_err(|error| invalid(&error))?;
    core.kubelet_grace = core.kubelet_grace.map(|grace| state.at_most(grace));
    let resources = Resources::new(container.made_by(maker), state.context.clone(), details, draft);
    Ok((resources, core))
}

/// Who makes the container's processes.
///
/// # Errors
/// No one can.
fn maker(
    sandbox: Option<&PodSandbox>,
    kind: TaskKind,
    node: &NodeFile<'_>,
    details: &CreateDetails,
    spec: &mut SpecDraft,
) -> Result<Maker, SandboxError> {
    match sandbox {
        Some(sandbox) if sandbox.has_no_process() => return Ok(Maker::Pins),
        // Process 1 of a shared pid namespace, of which there is no image that the OCI runtime could run.
        Some(_) => return own_sandbox(details, spec).map_err(SandboxError::Process1),
        None if kind != TaskKind::Sandbox => return Ok(Maker::Runtime),
        None => {}
    }
    // A mistake in the node's file is no reason against a pod without annotations (S1).
    let reason = match node.node() {
        Ok(node) if node.sandbox_maker() == SandboxMaker::Runtime => return Ok(Maker::Runtime),
        Ok(_) => match own_sandbox(details, spec) {
            Ok(own) => return Ok(own),
            Err(reason) => reason.to_string(),
        },
        Err(mistake) => mistake.to_string(),
    };
    info!(bundle = %details.bundle.display(), reason, "the OCI runtime makes the sandbox");
    Ok(Maker::Runtime)
}

/// podshim itself, where it does all that the spec asks for.
fn own_sandbox(details: &CreateDetails, spec: &mut SpecDraft) -> Result<Maker, NotUnderstood> {
    // Another one may be more than a maker of processes: a virtual machine, for one.
    let binary = details.options.binary().file_name().unwrap_or_default();
    let reason = match () {
        () if !RUNTIMES.iter().any(|known| binary == *known) => {
            Some("the OCI runtime is another than runc and crun")
        }
        () if details.checkpoint.is_some() => Some("it is restored from a checkpoint"),
        () if details.options.no_pivot_root => Some("NoPivotRoot is set"),
        () => None,
    };
    if let Some(reason) = reason {
        return Err(NotUnderstood::because(reason));
    }
    let driver = details.options.cgroup_driver_for(spec.spec());
    let spec = spec.tree().map_err(|error| NotUnderstood::because(&error.to_string()))?;
    Ok(Maker::Own(Rc::new(SandboxRequest::of(spec, driver)?)))
}

/// The plan that a new container's annotations declare.
fn plan_in<'a>(
    state: &mut State,
    id: &ContainerId,
    annotations: &BTreeMap<String, String>,
    node: &'a NodeFile<'_>,
) -> Result<Option<Plan>, AnnotationError<'a>> {
    match read_annotations(state, annotations, node) {
        Ok(Parsed { plan, warnings, .. }) => {
            for warning in &warnings {
                warn!(container = %id, %warning, "annotations");
            }
            Ok(plan)
        }
        // 11.4: the sandbox's annotations count; a later container's differ only by mistake.
        Err(error) if state.pod().plan_is_settled() => {
            warn!(container = %id, %error, "annotations are ignored: the pod has its plan already");
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Why a pod's annotations are no plan.
#[derive(Debug, Error)]
enum AnnotationError<'a> {
    #[error("{0}")]
    Node(&'a NodeFileError),
    #[error(transparent)]
    Plan(#[from] InvalidPlan),
}

/// Parses podshim's annotations, and what else can be a plan, within what the node's file allows. That file is read only
/// if there are any. A pod without podshim's annotations must not depend on it: a mistake in it costs such a pod its plan
/// (S1, S12). Of a settled plan they are read once: CRI gives each container those of its pod.
fn read_annotations<'a>(
    state: &mut State,
    annotations: &BTreeMap<String, String>,
    node: &'a NodeFile<'_>,
) -> Result<Parsed, AnnotationError<'a>> {
    let is_ours = |key: &str| key.starts_with(pod_spec::PREFIX);
    let declared: Vec<(&str, &str)> =
        cri::annotations(annotations).filter(|(key, _)| is_ours(key) || kruise::is_mark(key)).collect();
    let only_marks = !declared.iter().any(|(key, _)| is_ours(key));
    if declared.is_empty() || state.has_settled_by(&declared) || only_marks && state.pod().plan_is_settled() {
        return Ok(Parsed::default());
    }
    let node = match node.node() {
        Err(mistake) if only_marks => {
            warn!(%mistake, "OpenKruise's marks are not read");
            return Ok(Parsed::default());
        }
        read => read.map_err(AnnotationError::Node)?,
    };
    let parsed = node.parse_pod(declared.iter().copied())?;
    if !only_marks || parsed.plan.is_some() {
        state.have_read(node, &declared);
    }
    Ok(parsed)
}
