//! A Create request, from containerd's call to the request that the pod gets.
//!
//! Owns the checks before that: whether the node is being drained, whether the container belongs to this pod, its annotations,
//! its namespaces and its runtime options. Never decides whether and when a process is created: `pod-lifecycle` does.

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::rc::Rc;

use oci_runtime::bundle::Bundle;
use oci_runtime::runtime::Container;
use own_sandbox::{NotUnderstood, SandboxRequest};
use pod_lifecycle::{ContainerId, ContainerSpec, Refusal, RefusalKind, TaskKind};
use pod_spec::{InvalidPlan, Parsed, SandboxMaker, kruise};
use thiserror::Error;
use tracing::{info, warn};

use crate::cri::{self, SANDBOX_ID};
use crate::details::CreateDetails;
use crate::error::ServiceError;
use crate::names::names;
use crate::node::{self, NodeFileError};
use crate::node_shutdown;
use crate::pod_sandbox::error::SandboxError;
use crate::pod_sandbox::{self, PodSandbox};
use crate::resources::Resources;
use crate::sandbox_requests;
use crate::shared_namespaces;
use crate::state::State;

/// Checks a new container and keeps its resources. Returns what the pod needs to know of it.
pub(crate) fn admit(
    state: &mut State,
    id: &ContainerId,
    details: CreateDetails,
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
    let (resources, spec) = prepare(state, id, details)?;
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
) -> Result<(Resources, ContainerSpec), ServiceError> {
    let invalid = |error: &dyn StdError| ServiceError::Invalid {
        container: id.to_string(),
        message: error.to_string(),
    };
    let bundle = Bundle::new(&details.bundle);
    let mut spec = bundle.read_spec().map_err(|error| invalid(&error))?;
    cri::membership(id, &spec.annotations, &state.identity.id).map_err(|error| invalid(&error))?;
    if let Some(sandbox) = state.sandbox().filter(|sandbox| !sandbox.is(id)) {
        spec = sandbox.adapt(&bundle, sandbox_requests::process_1(state)).map_err(|error| invalid(&error))?;
    }
    pod_sandbox::refuse_no_process(&spec).map_err(|error| invalid(&error))?;
    state.identity.learn(&spec.annotations);
    names().learn_pod(&state.identity.pod_namespace, &state.identity.pod_name);
    let plan = match read_annotations(state, &spec.annotations) {
        Ok(Parsed { plan, warnings, .. }) => {
            for warning in &warnings {
                warn!(container = %id, %warning, "annotations");
            }
            plan
        }
        // 11.4: the sandbox's annotations count; a later container's differ only by mistake.
        Err(error) if state.pod().plan_is_settled() => {
            warn!(container = %id, %error, "annotations are ignored: the pod has its plan already");
            None
        }
        Err(error) => return Err(invalid(&error)),
    };
    shared_namespaces::join_live(&state.pids, |id| state.live_pid(id), id, &bundle, &spec)?;
    if let Some(sandbox) =
        spec.annotations.get(SANDBOX_ID).and_then(|id| state.container(&ContainerId::from(id.as_str())))
    {
        details.options = details.options.with_runtime_of(&sandbox.details().options);
    }
    // `delete` must call the same runtime, even when no shim is left that knows which.
    details.options.save(&bundle).map_err(|error| invalid(&error))?;
    let runtime = Rc::new(details.options.runtime(state.reaper.clone(), &state.context.namespace, &spec));
    let mut core = cri::container_spec(id, &spec, details.origin(), plan);
    let mut container = runtime.container(id.as_str(), bundle);
    if state.is_pod_sandbox(id) {
        container = process_1(state, container, &details).map_err(|error| invalid(&error))?;
    } else if core.kind == TaskKind::Sandbox {
        container = sandbox(state, container, &details);
    }
    core.kubelet_grace = core.kubelet_grace.map(|grace| state.at_most(grace));
    let resources = Resources::new(container, state.context.clone(), details, &spec);
    Ok((resources, core))
}

/// Makes the sandbox podshim's own, where the node's file says so and podshim does all that the spec asks for. A mistake in
/// the file is no reason against a pod without annotations (S1): the OCI runtime makes its sandbox.
fn sandbox(state: &State, container: Container, details: &CreateDetails) -> Container {
    let reason = match node::read(&state.context.node_file) {
        Ok(node) if node.sandbox_maker() == SandboxMaker::Runtime => return container,
        Ok(_) => match own_sandbox(&container, details) {
            Ok(request) => return container.as_sandbox(request),
            Err(reason) => reason.to_string(),
        },
        Err(mistake) => mistake.to_string(),
    };
    info!(container = container.id(), reason, "the OCI runtime makes the sandbox");
    container
}

/// Of a sandbox of the Sandbox API, which has no image that the OCI runtime could run: process 1 of a shared pid namespace.
fn process_1(
    state: &State,
    container: Container,
    details: &CreateDetails,
) -> Result<Container, SandboxError> {
    if state.sandbox().is_some_and(PodSandbox::has_no_process) {
        return Ok(container);
    }
    match own_sandbox(&container, details) {
        Ok(request) => Ok(container.as_sandbox(request)),
        Err(reason) => Err(SandboxError::Process1(reason)),
    }
}

fn own_sandbox(container: &Container, details: &CreateDetails) -> Result<SandboxRequest, NotUnderstood> {
    // Another one may be more than a maker of processes: a virtual machine, for one.
    let binary = details.options.binary().file_name().unwrap_or_default();
    let reason = match () {
        () if binary != "runc" && binary != "crun" => Some("the OCI runtime is another than runc and crun"),
        () if details.checkpoint.is_some() => Some("it is restored from a checkpoint"),
        () if details.options.no_pivot_root => Some("NoPivotRoot is set"),
        () => None,
    };
    match reason {
        Some(reason) => Err(NotUnderstood::because(reason)),
        None => container.sandbox_request(),
    }
}

/// Why a pod's annotations are no plan.
#[derive(Debug, Error)]
enum AnnotationError {
    #[error(transparent)]
    Node(#[from] NodeFileError),
    #[error(transparent)]
    Plan(#[from] InvalidPlan),
}

/// Parses podshim's annotations, and what else can be a plan, within what the node's file allows. That file is read only
/// if there are any. A pod without podshim's annotations must not depend on it: a mistake in it costs such a pod its plan
/// (S1, S12). Of a settled plan they are read once: CRI gives each container those of its pod.
fn read_annotations(
    state: &mut State,
    annotations: &BTreeMap<String, String>,
) -> Result<Parsed, AnnotationError> {
    let is_ours = |key: &str| key.starts_with(pod_spec::PREFIX);
    let declared: Vec<(&str, &str)> =
        cri::annotations(annotations).filter(|(key, _)| is_ours(key) || kruise::is_mark(key)).collect();
    let only_marks = !declared.iter().any(|(key, _)| is_ours(key));
    if declared.is_empty() || state.has_settled_by(&declared) || only_marks && state.pod().plan_is_settled() {
        return Ok(Parsed::default());
    }
    let node = match node::read(&state.context.node_file) {
        Err(mistake) if only_marks => {
            warn!(%mistake, "OpenKruise's marks are not read");
            return Ok(Parsed::default());
        }
        read => read?,
    };
    let parsed = node.parse_pod(declared.iter().copied())?;
    if !only_marks || parsed.plan.is_some() {
        state.have_read(&node, &declared);
    }
    Ok(parsed)
}
