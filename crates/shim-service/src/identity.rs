//! The ids and names by which people know the pod.
//!
//! Owns which annotations they come from. No rule of the pod may depend on a name.

use std::collections::BTreeMap;

use crate::cri::{ContainerType, SANDBOX_NAME, SANDBOX_NAMESPACE, SANDBOX_UID, container_type};

/// The pod's ids and names. Kubernetes' names come from CRI's annotations (F7); they are empty without CRI.
#[derive(Clone, Debug, Default)]
pub(crate) struct Identity {
    pub(crate) id: String,
    pub(crate) namespace: String,
    pub(crate) pod_name: String,
    pub(crate) pod_namespace: String,
    pub(crate) pod_uid: String,
    /// Milliseconds since 1970.
    pub(crate) started_at_ms: i64,
}

impl Identity {
    /// Takes the names from the annotations of the sandbox, or of any container that is not CRI's.
    pub(crate) fn learn(&mut self, annotations: &BTreeMap<String, String>) {
        // CRI's other containers have the same names, unless another caller has made their spec.
        if container_type(annotations) == Some(ContainerType::Container) {
            return;
        }
        let known = [
            (SANDBOX_NAME, &mut self.pod_name),
            (SANDBOX_NAMESPACE, &mut self.pod_namespace),
            (SANDBOX_UID, &mut self.pod_uid),
        ];
        for (key, place) in known {
            if let Some(value) = annotations.get(key) {
                place.clone_from(value);
            }
        }
    }
}
