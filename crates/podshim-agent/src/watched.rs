//! A pod as the agent reads it from the API server: only the fields that it needs.
//!
//! Owns that a pod's author cannot fill the agent's memory: in the API's own type 1.5 MB of short entries, as of `env` or `volumes`, are
//! hundreds of MB. What is not named here is skipped while it is read. Decides nothing of what is read.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use pod_spec::PREFIX;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

/// A pod.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct WatchedPod {
    /// Its names, its version, and of its annotations those of podshim.
    #[serde(default, deserialize_with = "read_metadata")]
    pub metadata: ObjectMeta,
    /// What its author wants.
    #[serde(default, deserialize_with = "or_none")]
    pub spec: Spec,
    /// What programs say of it.
    #[serde(default, deserialize_with = "or_none")]
    pub status: Status,
}

/// A pod's spec.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Spec {
    /// Its restart policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart_policy: Option<String>,
    /// What a kubelet starts before its containers.
    #[serde(deserialize_with = "or_none")]
    pub init_containers: Vec<Container>,
    /// Its regular containers.
    #[serde(deserialize_with = "or_none")]
    pub containers: Vec<Container>,
    /// What `kubectl debug` has added.
    #[serde(deserialize_with = "or_none", skip_serializing)]
    pub ephemeral_containers: Vec<Container>,
    /// What must be true for it to be ready.
    #[serde(deserialize_with = "or_none", skip_serializing)]
    pub readiness_gates: Vec<Gate>,
}

/// A container. Written again it has no null: that would be a value.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Container {
    /// Its name.
    pub name: String,
    /// Its own restart policy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart_policy: Option<String>,
    /// Its rules after exit codes, whatever a later Kubernetes adds to them; the API allows 20.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart_policy_rules: Option<Value>,
}

/// A readinessGate.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Gate {
    /// The type of its condition.
    pub condition_type: String,
}

/// A pod's status.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub struct Status {
    /// Its conditions.
    #[serde(deserialize_with = "or_none")]
    pub conditions: Vec<Condition>,
}

/// A condition.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Condition {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its status.
    pub status: String,
    /// Its reason.
    pub reason: Option<String>,
    /// Its message.
    pub message: Option<String>,
    /// Since when it has this status.
    pub last_transition_time: Option<Time>,
}

/// What is null is not there, as for the API's own types.
fn or_none<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Metadata {
    uid: Option<String>,
    name: Option<String>,
    namespace: Option<String>,
    resource_version: Option<String>,
    annotations: Option<BTreeMap<String, String>>,
}

fn read_metadata<'de, D: Deserializer<'de>>(from: D) -> Result<ObjectMeta, D::Error> {
    let Metadata { uid, name, namespace, resource_version, annotations } = Metadata::deserialize(from)?;
    let ours = |mut all: BTreeMap<String, String>| {
        all.retain(|key, _| key.starts_with(PREFIX));
        all
    };
    let annotations = annotations.map(ours);
    Ok(ObjectMeta { uid, name, namespace, resource_version, annotations, ..ObjectMeta::default() })
}

impl Resource for WatchedPod {
    type DynamicType = ();
    type Scope = <Pod as Resource>::Scope;

    fn kind((): &()) -> Cow<'_, str> {
        Pod::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        Pod::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        Pod::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        Pod::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// One object that cannot be read would end the watch of all.
    #[test]
    fn what_is_null_or_missing_is_not_there() {
        let spec = json!({"containers": null, "initContainers": null, "ephemeralContainers": null, "readinessGates": null, "restartPolicy": null});
        for pod in [
            json!({}),
            json!({"metadata": {"annotations": null, "uid": null}, "spec": null, "status": null}),
            json!({"metadata": {}, "spec": spec, "status": {"conditions": null}}),
            json!({"spec": {"containers": [{"name": "app", "restartPolicyRules": null}]},
                "status": {"conditions": [{"type": "a", "status": "True", "reason": null, "lastTransitionTime": null}]}}),
        ] {
            let read: WatchedPod =
                serde_json::from_value(pod.clone()).unwrap_or_else(|error| panic!("{pod}: {error}"));
            let written = serde_json::to_string(&read.spec).unwrap();
            assert!(!written.contains("null"), "{written}");
        }
    }
}
