//! Makes the changes in the tree of a document. The edited text must then read as that tree.

use super::change::{Change, Injection};
use crate::manifest;
use crate::yaml::{Node, Value};

/// Applies the changes to the pods of a document, in the order of `manifest::templates`.
pub fn apply(root: &mut Node, changes: &[Option<Change>]) {
    for (pod, change) in pods(root).into_iter().zip(changes) {
        if let Some(change) = change {
            apply_to_pod(pod, change);
        }
    }
}

/// The nodes with metadata and spec, in the same order as `manifest::templates`.
fn pods(root: &mut Node) -> Vec<&mut Node> {
    let mut found = Vec::new();
    if manifest::is_list(root) && root.get("items").is_some() {
        let items = root.get_mut("items").into_iter().flat_map(Node::children_mut);
        items.for_each(|object| add_pods_of(object, &mut found));
    } else {
        add_pods_of(root, &mut found);
    }
    found
}

fn add_pods_of<'a>(object: &'a mut Node, found: &mut Vec<&'a mut Node>) {
    if object.text_of("kind").and_then(manifest::path_of).is_some() {
        found.extend(pod_of(object));
    } else {
        add_pods_below(object, found);
    }
}

fn add_pods_below<'a>(node: &'a mut Node, found: &mut Vec<&'a mut Node>) {
    for child in node.children_mut() {
        if manifest::is_pod(child) {
            found.push(child);
        } else {
            add_pods_below(child, found);
        }
    }
}

fn pod_of(object: &mut Node) -> Option<&mut Node> {
    let path = manifest::path_of(object.text_of("kind")?)?;
    let pod = path.iter().try_fold(object, |node, key| node.get_mut(key))?;
    pod.get("spec")?;
    Some(pod)
}

fn apply_to_pod(pod: &mut Node, change: &Change) {
    annotate(pod, &change.annotations);
    let Some(spec) = pod.get_mut("spec") else { return };
    if let Some(class) = &change.runtime_class {
        spec.set("runtimeClassName", Node::string(class));
    }
    if change.removed.is_empty() {
        return;
    }
    let mut moved = Vec::new();
    if let Some(Value::Sequence(_, inits)) = spec.get_mut("initContainers").map(|node| &mut node.value) {
        moved = inits.split_off(change.stay.min(inits.len()));
    }
    if change.stay == 0 {
        spec.remove("initContainers");
    }
    for (container, removed) in moved.iter_mut().zip(&change.removed) {
        for path in removed {
            container.remove_at(path);
        }
    }
    if let Some(Value::Sequence(_, containers)) = spec.get_mut("containers").map(|node| &mut node.value) {
        containers.splice(0..0, moved);
    }
}

/// Sets annotations of a pod, which may have none.
fn annotate(pod: &mut Node, annotations: &[(String, String)]) {
    if annotations.is_empty() {
        return;
    }
    let mapping = || Node::mapping(Vec::new());
    if pod.get("metadata").is_none_or(Node::is_null) {
        pod.set("metadata", mapping());
    }
    if let Some(metadata) = pod.get_mut("metadata") {
        if metadata.get("annotations").is_none_or(Node::is_null) {
            metadata.set("annotations", mapping());
        }
        if let Some(own) = metadata.get_mut("annotations") {
            for (key, value) in annotations {
                own.set(key, Node::string(value));
            }
        }
    }
}

/// Applies the injections to the pods of a document, in the order of `manifest::templates`.
pub fn inject(root: &mut Node, injections: &[Option<Injection>]) {
    for (pod, injection) in pods(root).into_iter().zip(injections) {
        if let Some(injection) = injection {
            inject_into_pod(pod, injection);
        }
    }
}

fn inject_into_pod(pod: &mut Node, injection: &Injection) {
    annotate(pod, &injection.annotations);
    let Some(spec) = pod.get_mut("spec") else { return };
    if let Some(Value::Sequence(_, containers)) = spec.get_mut("containers").map(|node| &mut node.value) {
        for (index, node) in &injection.replaced {
            if let Some(place) = containers.get_mut(*index) {
                *place = node.clone();
            }
        }
        containers.splice(0..0, injection.front.iter().cloned());
        containers.extend(injection.back.iter().cloned());
    }
    for (key, items) in injection.lists() {
        if !items.is_empty() {
            spec.extend(key, items.iter().cloned());
        }
    }
}

/// Whether two trees mean the same. The order of keys and the kind of quotes do not matter.
pub fn same(one: &Node, other: &Node) -> bool {
    match (&one.value, &other.value) {
        (Value::Scalar(a), Value::Scalar(b)) => a.text == b.text && one.is_string() == other.is_string(),
        (Value::Sequence(_, a), Value::Sequence(_, b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Mapping(_, a), Value::Mapping(_, b)) => {
            a.len() == b.len()
                && a.iter()
                    .all(|(key, value)| b.iter().any(|(name, found)| same(key, name) && same(value, found)))
        }
        _ => false,
    }
}
