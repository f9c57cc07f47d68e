//! dist/kubernetes/label-policy as an API server evaluates it, on what the installer's account asks for: its conditions, its
//! variables, its rules. An expression that fails denies, as `failurePolicy: Fail` says.

use std::collections::HashMap;
use std::sync::Arc;

use cel::{Context, Env, Value as Cel};
use manifests::yaml::Node;
use node_setup::install::label::LABEL;
use serde_json::{Value, json};

use super::objects;

const ACCOUNT: &str = "system:serviceaccount:podshim:podshim-installer";
const OWN: &str = "node-7";
/// The messages of the policy's rules.
const ONLY_PATCH: &str = "podshim's installer may only patch nodes";
const OWN_NODE: &str = "podshim's installer may only label its own node";
const ONLY_LABEL: &str = "podshim's installer may only set the label podshim.io/ready";
const VALUES: &str = "podshim.io/ready is true or false";
const NOTHING_ELSE: &str = "podshim's installer may not change anything else of a node";

#[derive(Debug, PartialEq)]
enum Answer {
    /// The policy is not for this request.
    Unasked,
    Allowed,
    /// The message of the first rule that is not kept.
    Denied(String),
    /// The text of an expression that fails.
    Failed(String),
}

/// What a request asks for.
struct Request {
    user: Value,
    operation: &'static str,
    subresource: Option<&'static str>,
    before: Value,
    after: Value,
}

impl Request {
    /// The installer of `OWN` changes it from the one to the other.
    fn of(before: Value, after: Value) -> Self {
        let extra = json!({"authentication.kubernetes.io/node-name": [OWN]});
        let user = json!({"username": ACCOUNT, "extra": extra});
        Self { user, operation: "UPDATE", subresource: None, before, after }
    }

    fn answer(&self) -> Answer {
        let objects = objects();
        let (_, policy) =
            objects.iter().find(|(kind, _)| kind == "ValidatingAdmissionPolicy").expect("the policy");
        assert_eq!(policy.at(&["spec", "failurePolicy"]).and_then(Node::text), Some("Fail"));
        let entries = |key: &str| policy.at(&["spec", key]).expect("a list").items();
        let text = |entry: &Node, key: &str| entry.text_of(key).expect("a text").to_owned();
        let env = Arc::new(Env::stdlib());
        let mut context = Context::with_env(Arc::clone(&env));
        let named = [&self.after, &self.before].into_iter().find_map(|it| it["metadata"]["name"].as_str());
        let mut request = json!({"name": named, "operation": self.operation, "userInfo": self.user});
        if let Some(subresource) = self.subresource {
            request["subResource"] = json!(subresource);
        }
        for (name, value) in [("request", &request), ("object", &self.after), ("oldObject", &self.before)] {
            context.add_variable_from_value(name, cel::to_value(value).expect("a CEL value"));
        }
        let evaluate = |entry: &Node, context: &Context<'_, '_>| {
            let expression = text(entry, "expression");
            let program = env.compile(&expression).unwrap_or_else(|error| panic!("{error}\n{expression}"));
            program.execute(context).map_err(|error| Answer::Failed(format!("{expression}: {error}")))
        };
        for condition in entries("matchConditions") {
            match evaluate(condition, &context) {
                Ok(Cel::Bool(true)) => {}
                Ok(_) => return Answer::Unasked,
                Err(failed) => return failed,
            }
        }
        // A variable sees those before it.
        let mut variables: HashMap<String, Cel> = HashMap::new();
        for variable in entries("variables") {
            context.add_variable_from_value("variables", Cel::from(variables.clone()));
            match evaluate(variable, &context) {
                Ok(value) => variables.insert(text(variable, "name"), value),
                Err(failed) => return failed,
            };
        }
        context.add_variable_from_value("variables", Cel::from(variables));
        for rule in entries("validations") {
            match evaluate(rule, &context) {
                Ok(Cel::Bool(true)) => {}
                Ok(_) => return Answer::Denied(text(rule, "message")),
                Err(failed) => return failed,
            }
        }
        Answer::Allowed
    }

    #[track_caller]
    fn is_denied(&self, message: &str) {
        assert_eq!(self.answer(), Answer::Denied(message.to_owned()));
    }
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
        assert_eq!(Request::of(before.clone(), after.clone()).answer(), Answer::Allowed, "{before} {after}");
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
        Request::of(node(&[]), node(&[(path, value)])).is_denied(ONLY_LABEL);
    }
    Request::of(node(&[]), ready("perhaps")).is_denied(VALUES);
}

#[test]
fn another_node_is_denied() {
    let name = ("/metadata/name", json!("node-8"));
    let labelled = node(&[name.clone(), (READY, json!("true"))]);
    Request::of(node(&[name]), labelled).is_denied(OWN_NODE);
}

/// A token that is not bound to a pod names no node: then no node is the own one.
#[test]
fn a_request_that_names_no_node_is_denied() {
    let mut request = Request::of(node(&[]), ready("true"));
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
        Request::of(node(&[]), node(&more)).is_denied(NOTHING_ELSE);
        // And back: what is there may not be taken away.
        Request::of(node(&more), ready("true")).is_denied(NOTHING_ELSE);
    }
}

#[test]
fn whatever_is_no_patch_of_a_node_is_denied() {
    let request = |operation, subresource, before, after| Request {
        operation,
        subresource,
        ..Request::of(before, after)
    };
    request("CREATE", None, Value::Null, ready("true")).is_denied(ONLY_PATCH);
    request("DELETE", None, ready("true"), Value::Null).is_denied(ONLY_PATCH);
    request("UPDATE", Some("status"), node(&[]), ready("true")).is_denied(ONLY_PATCH);
    assert_eq!(request("UPDATE", Some(""), node(&[]), ready("true")).answer(), Answer::Allowed);
}

/// The kubelet and people label nodes as ever.
#[test]
fn another_account_is_not_asked() {
    let mut request = Request::of(node(&[]), node(&[("/metadata/labels/zone", json!("b"))]));
    request.user["username"] = json!("system:node:node-7");
    assert_eq!(request.answer(), Answer::Unasked);
}
