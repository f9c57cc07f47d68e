//! What CRI's and the kubelet's annotations in a container's OCI spec say of it.
//!
//! Owns the names of these annotations, and whether they make a container one of this pod. What follows from them is
//! `pod-lifecycle`'s decision.

use std::collections::BTreeMap;

use oci_runtime::spec::{self, Spec};
use pod_lifecycle::{
    Caller, ContainerId, ContainerSpec, KubeletHook, KubeletType, Origin, PidNamespace, StartBarrier,
    TaskKind,
};
use pod_spec::{BoundedDuration, Plan, kruise};
use thiserror::Error;

/// The CRI plugin's: the id of the container's sandbox.
pub const SANDBOX_ID: &str = "io.kubernetes.cri.sandbox-id";
/// The CRI plugin's: the name of the pod.
pub const SANDBOX_NAME: &str = "io.kubernetes.cri.sandbox-name";
/// The CRI plugin's: the namespace of the pod in Kubernetes.
pub const SANDBOX_NAMESPACE: &str = "io.kubernetes.cri.sandbox-namespace";
/// The CRI plugin's: the UID of the pod.
pub(crate) const SANDBOX_UID: &str = "io.kubernetes.cri.sandbox-uid";
/// The CRI plugin's: `sandbox` or `container`.
pub const CONTAINER_TYPE: &str = "io.kubernetes.cri.container-type";
/// The CRI plugin's: the container's name in its pod.
pub const CONTAINER_NAME: &str = "io.kubernetes.cri.container-name";
/// The container type of a sandbox.
pub(crate) const SANDBOX: &str = "sandbox";
/// The kubelet's, where the `container_annotations` of containerd's configuration let them through (F7, F8).
const KUBELET_TYPE: &str = "io.kubernetes.container.type";
const KUBELET_GRACE: &str = "io.kubernetes.pod.terminationGracePeriod";
/// The kubelet's, on every container that it creates.
const KUBELET_HASH: &str = "io.kubernetes.container.hash";
const KUBELET_PRE_STOP: &str = "io.kubernetes.container.preStopHandler";

/// What a container is to CRI.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContainerType {
    /// The pod's sandbox.
    Sandbox,
    /// A container in a sandbox.
    Container,
}

/// What a container is to CRI by its annotations; `None` if CRI has not made it.
pub fn container_type(annotations: &BTreeMap<String, String>) -> Option<ContainerType> {
    annotations.get(CONTAINER_TYPE).map(|kind| match kind.as_str() {
        SANDBOX => ContainerType::Sandbox,
        _ => ContainerType::Container,
    })
}

/// Who creates the container: only CRI names its kind.
pub(crate) fn caller(spec: &Spec) -> Caller {
    container_type(&spec.annotations).map_or(Caller::Other, |_| Caller::Cri)
}

/// What the pod's state machine needs of a spec. `plan` is what podshim's annotations in it declare.
pub(crate) fn container_spec(
    id: &ContainerId,
    spec: &Spec,
    origin: Origin,
    plan: Option<Plan>,
) -> ContainerSpec {
    let annotation = |key: &str| spec.annotations.get(key).map(String::as_str);
    let kind = match container_type(&spec.annotations) {
        Some(ContainerType::Sandbox) => TaskKind::Sandbox,
        Some(ContainerType::Container) | None => TaskKind::Container,
    };
    ContainerSpec {
        // ctr's containers have no name: the id is what their user has typed.
        name: annotation(CONTAINER_NAME).unwrap_or(id.as_str()).to_owned(),
        kind,
        caller: caller(spec),
        kubelet_type: match annotation(KUBELET_TYPE) {
            Some("init") => Some(KubeletType::Init),
            Some("ephemeral") => Some(KubeletType::Ephemeral),
            Some(_) => Some(KubeletType::Regular),
            None => None,
        },
        pid_namespace: match spec.pid_namespace() {
            spec::PidNamespace::Private => PidNamespace::Private,
            spec::PidNamespace::Shared => PidNamespace::Shared,
        },
        kubelet_grace: annotation(KUBELET_GRACE)
            .and_then(BoundedDuration::of_seconds_text)
            .map(BoundedDuration::get),
        kubelet: annotation(KUBELET_HASH).map(|_| match annotation(KUBELET_PRE_STOP) {
            Some(_) => KubeletHook::PreStop,
            None => KubeletHook::None,
        }),
        oom_score_adj: spec.process.as_ref().and_then(|process| process.oom_score_adj),
        origin,
        start_barrier: match has_variable(spec, kruise::BARRIER) {
            true => StartBarrier::Open,
            false => StartBarrier::None,
        },
        plan,
    }
}

fn has_variable(spec: &Spec, name: &str) -> bool {
    let variables = spec.process.iter().flat_map(|process| &process.env);
    variables.into_iter().any(|variable| variable.split_once('=').is_some_and(|(key, _)| key == name))
}

/// A container that this shim does not serve.
#[derive(Debug, PartialEq, Eq, Error)]
#[error(
    "it is of the sandbox {sandbox:?}, and this shim serves {pod:?} (does a runtime's pod_annotations in containerd's configuration \
     let io.containerd.* or io.kubernetes.* through?)"
)]
pub(crate) struct OfAnotherPod {
    sandbox: String,
    pod: String,
}

/// Checks that a container belongs to the pod `pod`. For CRI's containers the sandbox id decides, which CRI writes last and a
/// pod's author cannot set. Any other annotation that names a group may be the author's, who could join another's pod with it.
///
/// # Errors
/// [`OfAnotherPod`].
pub(crate) fn membership(
    id: &ContainerId,
    annotations: &BTreeMap<String, String>,
    pod: &str,
) -> Result<(), OfAnotherPod> {
    let sandbox = match container_type(annotations) {
        None => return Ok(()),
        Some(ContainerType::Sandbox) => id.as_str(),
        Some(ContainerType::Container) => annotations.get(SANDBOX_ID).map_or("", String::as_str),
    };
    if sandbox == pod {
        return Ok(());
    }
    Err(OfAnotherPod { sandbox: sandbox.to_owned(), pod: pod.to_owned() })
}

/// The annotations as `pod-spec`'s parser takes them.
pub(crate) fn annotations(annotations: &BTreeMap<String, String>) -> impl Iterator<Item = (&str, &str)> {
    annotations.iter().map(|(key, value)| (key.as_str(), value.as_str()))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn spec(annotations: &[(&str, &str)]) -> Spec {
        let annotations = annotations.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        Spec { annotations, ..Spec::default() }
    }

    /// F7, F8: the annotations of the CRI plugin and the kubelet.
    #[test]
    fn cri_annotations_reach_the_core() {
        let found = container_spec(
            &"id".into(),
            &spec(&[
                (CONTAINER_TYPE, "container"),
                (CONTAINER_NAME, "app"),
                (KUBELET_TYPE, "ephemeral"),
                (KUBELET_GRACE, "45"),
            ]),
            Origin::Program,
            None,
        );
        assert_eq!(found.name, "app");
        assert_eq!((found.caller, found.kind), (Caller::Cri, TaskKind::Container));
        assert_eq!(found.kubelet_type, Some(KubeletType::Ephemeral));
        assert_eq!(found.kubelet_grace, Some(Duration::from_secs(45)));
    }

    /// T16: a kubelet writes a hash on each of its containers, and a preStop hook on those that have one.
    #[test]
    fn a_kubelets_containers_are_known() {
        let kubelet = |marks: &[(&str, &str)]| {
            container_spec(&"id".into(), &spec(marks), Origin::Program, None).kubelet
        };
        assert_eq!(kubelet(&[]), None);
        assert_eq!(kubelet(&[(KUBELET_HASH, "5c1e")]), Some(KubeletHook::None));
        let hook = (KUBELET_PRE_STOP, "{\"exec\":{}}");
        assert_eq!(kubelet(&[(KUBELET_HASH, "5c1e"), hook]), Some(KubeletHook::PreStop));
    }

    /// DESIGN §6, issue 18: CRI's sandbox id counts, a group that a pod's author has named does not.
    #[test]
    fn a_container_of_another_sandbox_is_refused() {
        let of = |id: &str, pairs: &[(&str, &str)]| membership(&id.into(), &spec(pairs).annotations, "pod");
        let group = ("io.containerd.runc.v2.group", "pod");
        let (sandbox, container) = ((CONTAINER_TYPE, "sandbox"), (CONTAINER_TYPE, "container"));
        assert_eq!(of("pod", &[sandbox, (SANDBOX_ID, "pod")]), Ok(()));
        assert_eq!(of("c", &[container, (SANDBOX_ID, "pod")]), Ok(()));
        assert_eq!(of("web", &[group]), Ok(()));
        for (id, annotations) in [
            ("attacker", &[sandbox, (SANDBOX_ID, "attacker"), group][..]),
            ("attacker", &[sandbox, (SANDBOX_ID, "pod"), group]),
            ("c", &[container, (SANDBOX_ID, "attacker"), group]),
            ("c", &[container, group]),
        ] {
            let refused = of(id, annotations).expect_err(id).to_string();
            assert!(refused.contains("this shim serves \"pod\""), "{refused}");
        }
    }

    /// The longest grace that a kubelet can send counts as a year.
    #[test]
    fn a_grace_without_end_is_a_year() {
        for seconds in ["9223372036854775807", "18446744073709551616"] {
            let found =
                container_spec(&"id".into(), &spec(&[(KUBELET_GRACE, seconds)]), Origin::Program, None);
            assert_eq!(found.kubelet_grace, Some(pod_spec::limits::MAX_DURATION), "{seconds}");
        }
    }

    /// ctr sets no annotations: its signals are passed on as they are (K7), and a container's id is its name.
    #[test]
    fn without_cri_the_id_is_the_name() {
        let found = container_spec(&"web".into(), &spec(&[]), Origin::Program, None);
        assert_eq!((found.name.as_str(), found.caller), ("web", Caller::Other));
    }
}
