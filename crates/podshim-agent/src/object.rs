//! What of a pod's object the agent needs: its names, its condition, and where it contradicts its plan.
//!
//! Owns what is read of the API's pod. What a contradiction is, `manifests` decides.

use std::collections::{BTreeMap, BTreeSet};

use control_api::text::printable;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use manifests::check::contradictions;
use manifests::finding::Finding;
use pod_spec::limits::MAX_KUBELETS_OWN;
use pod_spec::{Node as NodeFile, STARTED_CONDITION, is_name, restart_request};
use serde_json::json;

use crate::report::PodName;
use crate::watched::WatchedPod;

/// A pod of this node.
#[derive(Clone, Debug, PartialEq)]
pub struct PodObject {
    /// Its names.
    pub pod: PodName,
    /// Whether one of its readinessGates is the condition.
    pub gate: ReadinessGate,
    /// The condition that it has.
    pub condition: Option<Shown>,
    /// The names of its regular containers: a kubelet creates them one after the other.
    pub containers: BTreeSet<String>,
    /// Where it contradicts its plan, each with what mends it.
    pub contradictions: Vec<String>,
    /// The same of init containers that its plan takes for mains, unless its shim gets their names.
    pub mistaken_mains: Vec<String>,
    /// The names of its init and ephemeral containers, as many as a shim keeps.
    pub kubelets_own: BTreeSet<String>,
    /// The value of its annotation that asks for a restart in place.
    pub restart: Option<String>,
}

/// Whether a pod waits for the condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadinessGate {
    /// It does: the condition is written.
    Named,
    /// It does not.
    Absent,
}

/// The status of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It is so.
    True,
    /// It is not.
    False,
    /// Another program has written that it does not know.
    Unknown,
}

impl Status {
    /// The API's word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }

    fn of(word: &str) -> Self {
        [Self::True, Self::False].into_iter().find(|own| own.word() == word).unwrap_or(Self::Unknown)
    }
}

/// A condition as the object has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Its status.
    pub status: Status,
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
    pub fn of(pod: &WatchedPod, node: &NodeFile, before: Option<&Self>) -> Option<Self> {
        let names = PodName {
            uid: pod.metadata.uid.clone()?,
            namespace: pod.metadata.namespace.clone()?,
            name: pod.metadata.name.clone()?,
        };
        let gates = pod.spec.readiness_gates.iter();
        let gate = match gates.filter(|gate| gate.condition_type == STARTED_CONDITION).count() {
            0 => ReadinessGate::Absent,
            _ => ReadinessGate::Named,
        };
        let (contradictions, mistaken_mains) = match before.filter(|before| before.pod == names) {
            Some(before) => (before.contradictions.clone(), before.mistaken_mains.clone()),
            None => contradictions_of(pod, node),
        };
        let kubelets_own = kubelets_own_of(pod);
        let containers = pod.spec.containers.iter().map(|own| own.name.clone()).collect();
        let restart = restart_of(pod);
        let condition = condition_of(pod);
        Some(Self {
            pod: names,
            gate,
            condition,
            containers,
            contradictions,
            mistaken_mains,
            kubelets_own,
            restart,
        })
    }
}

/// The inits first: an init that is held holds up its pod.
fn kubelets_own_of(pod: &WatchedPod) -> BTreeSet<String> {
    let inits = pod.spec.init_containers.iter().map(|init| &init.name);
    let ephemeral = pod.spec.ephemeral_containers.iter().map(|ephemeral| &ephemeral.name);
    let names = inits.chain(ephemeral).filter(|name| is_name(name));
    names.take(MAX_KUBELETS_OWN).cloned().collect()
}

/// As a shim keeps it.
fn restart_of(pod: &WatchedPod) -> Option<String> {
    let annotations = pod.metadata.annotations.iter().flatten();
    restart_request(annotations.map(|(key, value)| (key.as_str(), value.as_str()))).map(printable)
}

fn condition_of(pod: &WatchedPod) -> Option<Shown> {
    let own = pod.status.conditions.iter().find(|condition| condition.kind == STARTED_CONDITION)?;
    let since = own.last_transition_time.as_ref().map(|Time(at)| at.as_millisecond());
    Some(Shown {
        status: Status::of(&own.status),
        reason: own.reason.clone().unwrap_or_default(),
        message: own.message.clone().unwrap_or_default(),
        since_ms: since,
    })
}

/// Those of the plan, and its mistaken mains.
fn contradictions_of(pod: &WatchedPod, node: &NodeFile) -> (Vec<String>, Vec<String>) {
    let annotations = pod.metadata.annotations.as_ref();
    if annotations.is_none_or(BTreeMap::is_empty) {
        return Default::default();
    }
    let object = json!({"kind": "Pod", "metadata": {"annotations": annotations}, "spec": pod.spec});
    let found = contradictions(&object.to_string(), node);
    let words = |findings: Vec<Finding>| findings.into_iter().map(words).collect();
    (words(found.findings), words(found.mistaken_mains))
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
        let pod: WatchedPod = serde_json::from_value(pod).unwrap();
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
        assert_eq!((plain.contradictions.len(), plain.containers.len()), (0, 2), "{plain:?}");
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
        assert_eq!((shown.status, &*shown.reason, shown.since_ms), (Status::True, "MainsRun", Some(7000)));
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

    #[test]
    fn init_and_ephemeral_containers_are_its_kubelets_own() {
        let annotations = json!({"podshim.io/plan": "proxy=sidecar, *=main"});
        let metadata = json!({"uid": "u-1", "namespace": "prod", "name": "web", "annotations": annotations});
        let of = |inits: usize| {
            let inits: Vec<Value> =
                (0..inits).map(|number| json!({"name": format!("init-{number}")})).collect();
            let spec = json!({"initContainers": inits, "containers": [{"name": "app"}, {"name": "proxy"}],
                "ephemeralContainers": [{"name": "look", "targetContainerName": "app"}, {"name": "no name"}]});
            read(json!({"metadata": metadata, "spec": spec})).unwrap()
        };
        let object = of(1);
        assert_eq!(object.kubelets_own.iter().collect::<Vec<_>>(), ["init-0", "look"]);
        assert_eq!((object.contradictions.len(), object.mistaken_mains.len()), (0, 1), "{object:?}");
        let many = of(300).kubelets_own;
        assert_eq!((many.len(), many.contains("look")), (256, false), "the inits come first");
    }

    /// A container's rules are a field that this program's types must have: without them a plan that says the same would be wrong.
    #[test]
    fn a_plan_that_says_what_a_containers_rules_say_is_no_contradiction() {
        let rules = json!([{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]);
        let of = |restart: &str| {
            let annotations = json!({"podshim.io/plan": "app=main", "podshim.io/restart-policy": "Never",
                "podshim.io/restart.app": restart});
            let metadata =
                json!({"uid": "u-1", "namespace": "prod", "name": "web", "annotations": annotations});
            let app = json!({"name": "app", "restartPolicy": "Never", "restartPolicyRules": rules});
            read(json!({"metadata": metadata, "spec": {"restartPolicy": "Never", "containers": [app]}}))
                .unwrap()
        };
        assert_eq!(of("on-failure;codes=42").contradictions, [""; 0]);
        assert_eq!(of("on-failure;codes=43").contradictions.len(), 1);
    }

    /// A pod's author may fill it with 1.5 MB.
    #[test]
    fn what_else_a_pod_has_is_not_kept() {
        let long = "x".repeat(10_000);
        let app = json!({"name": "app", "command": [long], "env": [{"name": "A", "value": long}]});
        let annotations = json!({"podshim.io/plan": "app=main", "example.org/a": long});
        let metadata =
            json!({"annotations": annotations, "labels": {"a": long}, "managedFields": [{"manager": long}]});
        let spec = json!({"containers": [app], "volumes": [{"name": long}]});
        let pod =
            json!({"metadata": metadata, "spec": spec, "status": {"containerStatuses": [{"name": long}]}});
        let kept = format!("{:?}", serde_json::from_value::<WatchedPod>(pod).unwrap());
        assert!(kept.contains("app=main") && !kept.contains(&long), "{}", kept.len());
    }
}
