//! dist/kubernetes/agent-policy on what the agent's account asks for: one condition of its own node's pods, and events in its own name.

use serde_json::{Value, json};

use super::validating::{Answer, Request};

const ACCOUNT: &str = "system:serviceaccount:podshim-agent:podshim-agent";
const OWN: &str = "node-7";
const ONLY_STATUS: &str = "podshim's agent may only patch the status of pods";
const OWN_NODE: &str = "podshim's agent may only change pods of its own node";
const ONLY_CONDITION: &str = "podshim's agent may only set the condition podshim.io/Started";
const NOTHING_BUT_STATUS: &str = "podshim's agent may not change anything of a pod but its status";
const NOTHING_ELSE: &str = "podshim's agent may not change anything else of a pod's status";

fn user(node: &str) -> Value {
    json!({"username": ACCOUNT, "extra": {"authentication.kubernetes.io/node-name": [node]}})
}

fn of_pod(before: Value, after: Value) -> Request {
    let subresource = Some("status");
    Request { policy: "podshim-agent-pods", user: user(OWN), operation: "UPDATE", subresource, before, after }
}

/// A pod of that node with these conditions.
fn pod(node: &str, conditions: &[(&str, &str)]) -> Value {
    let condition = |(kind, status): &(&str, &str)| json!({"type": kind, "status": status});
    let conditions: Vec<Value> = conditions.iter().map(condition).collect();
    json!({
        "metadata": {"name": "web", "namespace": "prod", "labels": {"app": "web"}},
        "spec": {"nodeName": node, "containers": [{"name": "app"}]},
        "status": {"phase": "Running", "podIP": "10.0.0.7", "conditions": conditions,
            "containerStatuses": [{"name": "app", "ready": true}]},
    })
}

fn with(mut pod: Value, pointer: &str, value: Value) -> Value {
    let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
    pod.pointer_mut(parent).expect("a parent")[key] = value;
    pod
}

const BEFORE: &[(&str, &str)] = &[("Ready", "False"), ("PodScheduled", "True")];
const AFTER: &[(&str, &str)] =
    &[("Ready", "False"), ("PodScheduled", "True"), ("podshim.io/Started", "True")];

#[test]
fn the_condition_of_a_pod_of_its_node_is_allowed() {
    let without = json!({"metadata": {}, "spec": {"nodeName": OWN}, "status": {}});
    let with_it = with(without.clone(), "/status/conditions", json!([{"type": "podshim.io/Started"}]));
    for (before, after) in [
        (pod(OWN, BEFORE), pod(OWN, AFTER)),
        (pod(OWN, AFTER), pod(OWN, AFTER)),
        (pod(OWN, AFTER), pod(OWN, BEFORE)),
        (without, with_it),
    ] {
        assert_eq!(of_pod(before.clone(), after.clone()).answer(), Answer::Allowed, "{before} {after}");
    }
}

#[test]
fn another_condition_or_node_is_denied() {
    let ready = [("Ready", "True"), ("PodScheduled", "True"), ("podshim.io/Started", "True")];
    of_pod(pod(OWN, BEFORE), pod(OWN, &ready)).is_denied(ONLY_CONDITION);
    of_pod(pod(OWN, BEFORE), pod(OWN, &AFTER[1..])).is_denied(ONLY_CONDITION);
    of_pod(pod("node-8", BEFORE), pod("node-8", AFTER)).is_denied(OWN_NODE);
    let mut request = of_pod(pod(OWN, BEFORE), pod(OWN, AFTER));
    request.user = json!({"username": ACCOUNT, "extra": {}});
    request.is_denied(OWN_NODE);
}

#[test]
fn all_else_of_a_pod_is_denied() {
    let changed = |pointer: &str, value: Value| with(pod(OWN, AFTER), pointer, value);
    for (pointer, value) in [
        ("/metadata/labels", json!({"app": "other"})),
        ("/metadata/annotations", json!({"a": "b"})),
        ("/metadata/finalizers", json!(["a/b"])),
        ("/metadata/ownerReferences", json!([{"uid": "1"}])),
        ("/spec/containers", json!([])),
    ] {
        of_pod(pod(OWN, BEFORE), changed(pointer, value.clone())).is_denied(NOTHING_BUT_STATUS);
    }
    for (pointer, value) in [
        ("/status/phase", json!("Succeeded")),
        ("/status/reason", json!("Evicted")),
        ("/status/message", json!("text")),
        ("/status/podIP", json!("10.0.0.8")),
        ("/status/podIPs", json!([{"ip": "10.0.0.8"}])),
        ("/status/hostIP", json!("10.0.0.8")),
        ("/status/hostIPs", json!([])),
        ("/status/startTime", json!("2026-01-01T00:00:00Z")),
        ("/status/nominatedNodeName", json!("node-8")),
        ("/status/qosClass", json!("Guaranteed")),
        ("/status/resize", json!("Infeasible")),
        ("/status/resourceClaimStatuses", json!([{"name": "gpu", "resourceClaimName": "other"}])),
        ("/status/containerStatuses", json!([])),
        ("/status/initContainerStatuses", json!([])),
        ("/status/ephemeralContainerStatuses", json!([])),
    ] {
        of_pod(pod(OWN, BEFORE), changed(pointer, value.clone())).is_denied(NOTHING_ELSE);
    }
}

#[test]
fn whatever_is_no_patch_of_a_status_is_denied() {
    for (operation, subresource) in [
        ("UPDATE", None),
        ("UPDATE", Some("")),
        ("UPDATE", Some("ephemeralcontainers")),
        ("CREATE", Some("binding")),
        ("CONNECT", Some("exec")),
        ("DELETE", None),
    ] {
        let request = of_pod(pod(OWN, BEFORE), pod(OWN, AFTER));
        Request { operation, subresource, ..request }.is_denied(ONLY_STATUS);
    }
}

/// The kubelet and controllers write as ever.
#[test]
fn another_account_is_not_asked() {
    let mut request = of_pod(pod(OWN, BEFORE), pod("node-8", &[]));
    request.user["username"] = json!("system:node:node-8");
    assert_eq!(request.answer(), Answer::Unasked);
    let mut request = of_event(event());
    request.user["username"] = json!("system:node:node-8");
    assert_eq!(request.answer(), Answer::Unasked);
}

fn event() -> Value {
    json!({
        "metadata": {"name": "web.1", "namespace": "prod"},
        "reportingController": "podshim.io/agent",
        "reportingInstance": OWN,
        "regarding": {"apiVersion": "v1", "kind": "Pod", "name": "web", "namespace": "prod"},
    })
}

fn of_event(after: Value) -> Request {
    let policy = "podshim-agent-events";
    Request { policy, user: user(OWN), operation: "CREATE", subresource: None, before: Value::Null, after }
}

#[test]
fn an_event_about_a_pod_in_its_own_name_is_allowed_and_no_other() {
    assert_eq!(of_event(event()).answer(), Answer::Allowed);
    let series = with(event(), "/series", json!({"count": 2}));
    let patch = Request { operation: "UPDATE", before: event(), ..of_event(series) };
    assert_eq!(patch.answer(), Answer::Allowed);
    let own_name = "podshim's agent may only write events in its own name";
    for (pointer, value) in
        [("/reportingController", json!("kubelet")), ("/reportingInstance", json!("node-8"))]
    {
        of_event(with(event(), pointer, value)).is_denied(own_name);
    }
    let about_pods = "podshim's agent may only write events about pods";
    of_event(with(event(), "/regarding/kind", json!("Node"))).is_denied(about_pods);
    let delete = Request { operation: "DELETE", before: event(), ..of_event(Value::Null) };
    delete.is_denied("podshim's agent may only write events");
}
