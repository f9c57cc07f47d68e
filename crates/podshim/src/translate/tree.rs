//! A change carried out on the tree of a document. What the tree says then is what the text must say.

use super::native::Change;
use crate::yaml::{Node, Position, Quoting, Scalar, Style, Value};

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
    if root.text_of("kind") == Some("List") {
        return match root.get_mut("items").map(|items| &mut items.value) {
            Some(Value::Sequence(_, items)) => items.iter_mut().filter_map(pod_of).collect(),
            _ => Vec::new(),
        };
    }
    pod_of(root).into_iter().collect()
}

fn pod_of(object: &mut Node) -> Option<&mut Node> {
    let path = crate::manifest::path_of(object.text_of("kind")?)?;
    let pod = path.iter().try_fold(object, |node, key| node.get_mut(key))?;
    pod.get("spec")?;
    Some(pod)
}

fn apply_to_pod(pod: &mut Node, change: &Change) {
    let mapping = || Node::made(Value::Mapping(Style::Block, Vec::new()));
    if pod.get("metadata").is_none_or(Node::is_null) {
        pod.set("metadata", mapping());
    }
    if let Some(metadata) = pod.get_mut("metadata") {
        if metadata.get("annotations").is_none_or(Node::is_null) {
            metadata.set("annotations", mapping());
        }
        if let Some(annotations) = metadata.get_mut("annotations") {
            for (key, value) in &change.annotations {
                annotations.set(key, string(value));
            }
        }
    }
    let Some(spec) = pod.get_mut("spec") else { return };
    if let Some(class) = &change.runtime_class {
        spec.set("runtimeClassName", string(class));
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
            if let Some((last, above)) = path.split_last()
                && let Some(node) = above.iter().try_fold(&mut *container, |node, key| node.get_mut(key))
            {
                node.remove(last);
            }
        }
    }
    if let Some(Value::Sequence(_, containers)) = spec.get_mut("containers").map(|node| &mut node.value) {
        containers.splice(0..0, moved);
    }
}

fn string(text: &str) -> Node {
    Node::made(Value::Scalar(Scalar { text: text.to_owned(), quoting: Quoting::Quoted }))
}

/// Whether two trees say the same. The order of keys and the kind of quotes say nothing.
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

impl Node {
    /// A node that stands nowhere yet.
    fn made(value: Value) -> Self {
        Self { start: Position::default(), end: Position::default(), value }
    }

    fn get_mut(&mut self, key: &str) -> Option<&mut Self> {
        let Value::Mapping(_, entries) = &mut self.value else { return None };
        entries.iter_mut().find(|(name, _)| name.text() == Some(key)).map(|(_, value)| value)
    }

    fn set(&mut self, key: &str, value: Self) {
        if let Some(place) = self.get_mut(key) {
            *place = value;
        } else if let Value::Mapping(_, entries) = &mut self.value {
            let quoting = if key.contains(['[', '"', '#']) { Quoting::Quoted } else { Quoting::Plain };
            entries.push((Self::made(Value::Scalar(Scalar { text: key.to_owned(), quoting })), value));
        }
    }

    fn remove(&mut self, key: &str) {
        if let Value::Mapping(_, entries) = &mut self.value {
            entries.retain(|(name, _)| name.text() != Some(key));
        }
    }
}
