//! dist/kubernetes/label-policy on what the installer's account asks for: its conditions, its variables, its rules.

use node_setup::install::label::LABEL;
use serde_json::{Value, json};

use super::validating::{Answer, Request};

const ACCOUNT: &str = "system:serviceaccount:podshim:podshim-installer";
const OWN: &str = "node-7";
/// The messages of the policy's rules.
const ONLY_PATCH: &str = "podshim's installer may only patch nodes";
const OWN_NODE: &str = "podshim's installer may only label its own node";
const ONLY_LABEL: &str = "podshim's installer may only set the label podshim.io/ready";
const VALUES: &str = "podshim.io/ready is true or false";
const NOTHING_ELSE: &str = "podshim's installer may not change anything else of a node";

/// The installer of `OWN` changes it from the one to the other.
fn request_of(before: Value, after: Value) -> Request {
    let extra = json!({"authentication.kubernetes.io/node-name": [OWN]});
    let user = json!({"username": ACCOUNT, "extra": extra});
    Request { policy: "podshim-node-label", user, operation: "UPDATE", subresource: None, before, after }
}

/// A node as the kubelet has made it, after these changes, each of one field.
fn node(changes: &[(&str, Value)]) -> Value {
    let mut node = json!({
        "metadata": {
            "name": OWN,
            "labels": {"kubernetes.io/hostname": OWN, "zone": "a"},
            "annotations": {"a": "b"},
        },
        "spec": {"podCIDR": "10.0.0.0/24"},
    });
    for (pointer, value) in changes {
        let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
        let parent = node.pointer_mut(parent).and_then(Value::as_object_mut).expect("an object");
        let key = key.replace("~1", "/");
        match value {
            Value::Null => drop(parent.remove(&key)),
            value => drop(parent.insert(key, value.clone())),
        }
    }
    node
}

const READY: &str = "/metadata/labels/podshim.io~1ready";

fn ready(value: &str) -> Value {
    node(&[(READY, json!(value))])
}

#[test]
fn the_own_label_of_the_own_node_is_allowed() {
    assert_eq!(READY.rsplit_once('/').map(|(_, key)| key.replace("~1", "/")).as_deref(), Some(LABEL));
    let unlabelled = node(&[("/metadata/labels", Value::Null)]);
    let only = node(&[("/metadata/labels", json!({LABEL: "true"}))]);
    let bare = |labels: Value| json!({"metadata": {"name": OWN, "labels": labels}});
    for (before, after) in [
        (node(&[]), ready("true")),
        (ready("true"), ready("false")),
        (ready("true"), node(&[])),
        (ready("true"), ready("true")),
        (unlabelled, only),
        (bare(json!({})), bare(json!({LABEL: "false"}))),
    ] {
        assert_eq!(request_of(before.clone(), after.clone()).answer(), Answer::Allowed, "{before} {after}");
    }
}

#[test]
fn another_label_is_denied() {
    for (path, value) in [
        ("/metadata/labels/node-role", json!("control-plane")),
        ("/metadata/labels/zone", json!("b")),
        ("/metadata/labels/zone", Value::Null),
        ("/metadata/labels", Value::Null),
    ] {
        request_of(node(&[]), node(&[(path, value)])).is_denied(ONLY_LABEL);
    }
    request_of(node(&[]), ready("perhaps")).is_denied(VALUES);
}

#[test]
fn another_node_is_denied() {
    let name = ("/metadata/name", json!("node-8"));
    let labelled = node(&[name.clone(), (READY, json!("true"))]);
    request_of(node(&[name]), labelled).is_denied(OWN_NODE);
}

/// A token that is not bound to a pod names no node: then no node is the own one.
#[test]
fn a_request_that_names_no_node_is_denied() {
    let mut request = request_of(node(&[]), ready("true"));
    for extra in [json!({}), json!({"authentication.kubernetes.io/node-name": []})] {
        request.user = json!({"username": ACCOUNT, "extra": extra});
        request.is_denied(OWN_NODE);
    }
    request.user = json!({"username": ACCOUNT});
    assert!(matches!(request.answer(), Answer::Failed(_)), "{:?}", request.answer());
}

#[test]
fn all_else_of_a_node_is_denied() {
    for (path, value) in [
        ("/metadata/annotations/a", json!("c")),
        ("/metadata/annotations", Value::Null),
        ("/metadata/finalizers", json!(["a/b"])),
        ("/metadata/ownerReferences", json!([{"uid": "1"}])),
        ("/spec/unschedulable", json!(true)),
        ("/spec/taints", json!([{"key": "a", "effect": "NoExecute"}])),
        ("/spec", Value::Null),
    ] {
        let more = [(READY, json!("true")), (path, value.clone())];
        request_of(node(&[]), node(&more)).is_denied(NOTHING_ELSE);
        // And back: what is there may not be taken away.
        request_of(node(&more), ready("true")).is_denied(NOTHING_ELSE);
    }
}

#[test]
fn whatever_is_no_patch_of_a_node_is_denied() {
    let request = |operation, subresource, before, after| Request {
        operation,
        subresource,
        ..request_of(before, after)
    };
    request("CREATE", None, Value::Null, ready("true")).is_denied(ONLY_PATCH);
    request("DELETE", None, ready("true"), Value::Null).is_denied(ONLY_PATCH);
    request("UPDATE", Some("status"), node(&[]), ready("true")).is_denied(ONLY_PATCH);
    assert_eq!(request("UPDATE", Some(""), node(&[]), ready("true")).answer(), Answer::Allowed);
}

/// The kubelet and people label nodes as ever.
#[test]
fn another_account_is_not_asked() {
    let mut request = request_of(node(&[]), node(&[("/metadata/labels/zone", json!("b"))]));
    request.user["username"] = json!("system:node:node-7");
    assert_eq!(request.answer(), Answer::Unasked);
}
