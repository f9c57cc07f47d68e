//! What of a pod's object the agent needs: its names, its condition, and where it contradicts its plan.
//!
//! Owns what is read of the API's pod. What a contradiction is, `manifests` decides.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use manifests::check::contradictions;
use manifests::finding::Finding;
use pod_spec::{Node as NodeFile, PREFIX, STARTED_CONDITION};
use serde_json::json;

use crate::report::PodName;

/// A pod of this node.
#[derive(Clone, Debug, PartialEq)]
pub struct PodObject {
    /// Its names.
    pub pod: PodName,
    /// Whether one of its readinessGates is the condition.
    pub gate: ReadinessGate,
    /// The condition that it has.
    pub condition: Option<Shown>,
    /// Where it contradicts its plan, each with what mends it.
    pub contradictions: Vec<String>,
}

/// Whether a pod waits for the condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadinessGate {
    /// It does: the condition is written.
    Named,
    /// It does not.
    Absent,
}

/// A condition as the object has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Its status.
    pub status: String,
    /// Its reason.
    pub reason: String,
    /// Its message.
    pub message: String,
    /// Since when it has this status, in milliseconds since 1970.
    pub since_ms: Option<i64>,
}

impl PodObject {
    /// What is needed of a pod; `None` of an object without names. The contradictions are those of the object that was seen first: that one
    /// is nearest to what its shim has read.
    #[must_use]
    pub fn of(pod: &Pod, node: &NodeFile, before: Option<&Self>) -> Option<Self> {
        let names = PodName {
            uid: pod.metadata.uid.clone()?,
            namespace: pod.metadata.namespace.clone()?,
            name: pod.metadata.name.clone()?,
        };
        let gates = pod.spec.as_ref().and_then(|spec| spec.readiness_gates.as_ref()).into_iter().flatten();
        let gate = match gates.filter(|gate| gate.condition_type == STARTED_CONDITION).count() {
            0 => ReadinessGate::Absent,
            _ => ReadinessGate::Named,
        };
        let contradictions = match before.filter(|before| before.pod == names) {
            Some(before) => before.contradictions.clone(),
            None => contradictions_of(pod, node),
        };
        Some(Self { pod: names, gate, condition: condition_of(pod), contradictions })
    }
}

fn condition_of(pod: &Pod) -> Option<Shown> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let own = conditions.iter().find(|condition| condition.type_ == STARTED_CONDITION)?;
    let since = own.last_transition_time.as_ref().map(|Time(at)| at.as_millisecond());
    Some(Shown {
        status: own.status.clone(),
        reason: own.reason.clone().unwrap_or_default(),
        message: own.message.clone().unwrap_or_default(),
        since_ms: since,
    })
}

fn contradictions_of(pod: &Pod, node: &NodeFile) -> Vec<String> {
    let annotations = pod.metadata.annotations.as_ref();
    let is_planned = |key: &String| key.starts_with(PREFIX);
    if !annotations.is_some_and(|annotations| annotations.keys().any(is_planned)) {
        return Vec::new();
    }
    let object = json!({"kind": "Pod", "metadata": {"annotations": annotations}, "spec": pod.spec});
    contradictions(&object.to_string(), node).into_iter().map(words).collect()
}

fn words(finding: Finding) -> String {
    match finding.fix {
        Some(fix) => format!("{}: {fix}", finding.message),
        None => finding.message,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn read(pod: Value) -> Option<PodObject> {
        let pod: Pod = serde_json::from_value(pod).unwrap();
        PodObject::of(&pod, &NodeFile::default(), None)
    }

    fn pod(spec: Value, status: Value) -> PodObject {
        let annotations = json!({"podshim.io/plan": "proxy=sidecar, app=main"});
        let metadata = json!({"uid": "u-1", "namespace": "prod", "name": "web", "annotations": annotations});
        read(json!({"metadata": metadata, "spec": spec, "status": status})).unwrap()
    }

    #[test]
    fn a_pod_that_waits_for_the_condition_is_known_by_its_gate() {
        let containers = json!([{"name": "app"}, {"name": "proxy"}]);
        let plain = pod(json!({"containers": containers}), json!({}));
        assert_eq!((plain.gate, &plain.condition), (ReadinessGate::Absent, &None));
        let gates = json!([{"conditionType": "a/b"}, {"conditionType": "podshim.io/Started"}]);
        let condition = json!({"type": "podshim.io/Started", "status": "True", "reason": "MainsRun",
            "lastTransitionTime": "1970-01-01T00:00:07Z"});
        let conditions = json!([{"type": "Ready", "status": "False"}, condition]);
        let gated = pod(
            json!({"containers": containers, "readinessGates": gates}),
            json!({"conditions": conditions}),
        );
        assert_eq!(gated.gate, ReadinessGate::Named);
        let shown = gated.condition.unwrap();
        assert_eq!((&*shown.status, &*shown.reason, shown.since_ms), ("True", "MainsRun", Some(7000)));
        assert_eq!(read(json!({"metadata": {"name": "web"}})), None);
    }

    #[test]
    fn a_contradiction_comes_with_the_annotation_that_mends_it() {
        let object = pod(
            json!({"restartPolicy": "Never", "containers": [{"name": "app"}, {"name": "proxy"}]}),
            json!({}),
        );
        let expected =
            "the pod's restartPolicy is Never, the plan's is Always: write podshim.io/restart-policy: Never";
        assert_eq!(object.contradictions, [expected]);
    }
}
