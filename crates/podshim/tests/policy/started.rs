//! dist/policy/agent: the readinessGate of podshim's agent, for the pods that dist/policy gives a plan.

use std::collections::BTreeSet;

use pod_spec::STARTED_CONDITION;
use serde_json::{Value, json};

use crate::admission::{Admitted, Policy, objects};
use crate::{fixture, rendered, skipped};

fn policy() -> Policy {
    Policy::of("agent/started.yaml")
}

fn gates(pod: &Value) -> Vec<&str> {
    let gates = pod["spec"]["readinessGates"].as_array().into_iter().flatten();
    gates.filter_map(|gate| gate["conditionType"].as_str()).collect()
}

#[test]
fn a_pod_gets_the_gate_once_beside_those_that_it_has() {
    for (name, mut pod) in [("plain", fixture("plain")), ("native", fixture("native"))] {
        assert!(matches!(policy().admit(&mut pod), Admitted::Patched(_)), "{name}");
        assert_eq!(gates(&pod), [STARTED_CONDITION], "{name}");
        assert_eq!(skipped(&policy(), pod.clone()), "has-no-such-gate");
        // In either order of the two policies.
        assert!(matches!(Policy::read().admit(&mut pod), Admitted::Patched(_)), "{name}");
        assert_eq!(skipped(&policy(), pod), "has-no-such-gate");
    }
    let mut pod = fixture("plain");
    pod["spec"]["readinessGates"] = json!([{"conditionType": "a/b"}]);
    policy().admit(&mut pod);
    assert_eq!(gates(&pod), ["a/b", STARTED_CONDITION]);
}

#[test]
fn a_job_and_a_pod_with_very_many_gates_are_left_as_they_are() {
    let mut job = fixture("plain");
    job["spec"]["restartPolicy"] = json!("Never");
    assert_eq!(skipped(&policy(), job), "is-no-job");
    let mut many = fixture("plain");
    many["spec"]["readinessGates"] =
        (0..65).map(|number| json!({"conditionType": format!("a/{number}")})).collect();
    assert_eq!(skipped(&policy(), many), "has-no-such-gate");
}

/// Kubernetes says no order of policies: this one cannot wait for what the other one writes.
#[test]
fn it_takes_the_pods_of_the_other_policy() {
    let (own, other) = (policy(), Policy::read());
    assert_eq!(own.conditions[..other.conditions.len()], other.conditions[..]);
    let (own, other) = (objects("agent/bindings.yaml"), objects("bindings.yaml"));
    let resources = |objects: &[manifests::yaml::Node]| -> Vec<String> {
        let of = |object: &manifests::yaml::Node| {
            format!(
                "{:?}",
                crate::admission::json_of(object.at(&["spec", "matchResources"]).expect("a selection"))
            )
        };
        objects.iter().map(of).collect()
    };
    assert_eq!(resources(&own), resources(&other));
}

#[test]
fn kustomize_renders_it() {
    let rendered = rendered("agent");
    let kinds: BTreeSet<_> = rendered.iter().filter_map(|it| it.root.text_of("kind")).collect();
    assert_eq!(kinds, BTreeSet::from(["MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding"]));
    let policies = rendered.iter().map(|it| {
        let name = it.root.at(&["spec", "policyName"]).or(it.root.at(&["metadata", "name"]));
        name.and_then(manifests::yaml::Node::text).unwrap_or_default().to_owned()
    });
    assert_eq!(policies.collect::<Vec<_>>(), ["podshim-started"; 3]);
}
