//! Who the pod is, to people: its ids and the names that CRI writes into its sandbox's spec.

use std::collections::BTreeMap;

use crate::cri::CONTAINER_TYPE;

/// Who the pod is, to people. Kubernetes' names are those of the CRI's annotations (F7).
#[derive(Clone, Debug, Default)]
pub(crate) struct Identity {
    pub(crate) id: String,
    pub(crate) namespace: String,
    pub(crate) pod_name: String,
    pub(crate) pod_namespace: String,
    pub(crate) pod_uid: String,
    /// Since 1970.
    pub(crate) started_at_ms: i64,
}

impl Identity {
    /// Takes over what the CRI writes into each container's spec.
    pub(crate) fn learn(&mut self, annotations: &BTreeMap<String, String>) {
        // A CRI container says the same as its sandbox, or another caller has asked for it.
        if annotations.get(CONTAINER_TYPE).is_some_and(|kind| kind != "sandbox") {
            return;
        }
        let known = [
            ("io.kubernetes.cri.sandbox-name", &mut self.pod_name),
            ("io.kubernetes.cri.sandbox-namespace", &mut self.pod_namespace),
            ("io.kubernetes.cri.sandbox-uid", &mut self.pod_uid),
        ];
        for (key, place) in known {
            if let Some(value) = annotations.get(key) {
                place.clone_from(value);
            }
        }
    }
}
