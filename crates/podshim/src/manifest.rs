//! Finds the pods in Kubernetes manifests: the kinds that have a pod template, and the fields of a template that matter
//! to podshim. Owns the paths; judges nothing.

use pod_spec::Signal;

use crate::yaml::{Document, Node};

/// The kinds with a pod template, and the path to it.
const KINDS: [(&str, &[&str]); 9] = [
    ("Pod", &[]),
    ("PodTemplate", &["template"]),
    ("Deployment", &["spec", "template"]),
    ("StatefulSet", &["spec", "template"]),
    ("DaemonSet", &["spec", "template"]),
    ("ReplicaSet", &["spec", "template"]),
    ("ReplicationController", &["spec", "template"]),
    ("Job", &["spec", "template"]),
    ("CronJob", &["spec", "jobTemplate", "spec", "template"]),
];

/// A pod of a manifest.
#[derive(Clone, Copy, Debug)]
pub struct Template<'a> {
    /// `Deployment`, `Pod`, ...
    pub kind: &'static str,
    /// The object that has the template.
    pub object: &'a Node,
    /// The node with the pod's metadata and spec.
    pub pod: &'a Node,
    /// The pod's spec.
    pub spec: &'a Node,
}

/// How a kubelet starts a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum List {
    /// One of `initContainers`, to completion.
    Init,
    /// One of `initContainers` with `restartPolicy: Always` (KEP-753).
    NativeSidecar,
    /// One of `containers`.
    Regular,
}

/// A container of a pod.
#[derive(Clone, Copy, Debug)]
pub struct Container<'a> {
    /// Its name; empty if it has none.
    pub name: &'a str,
    /// Its node in the document.
    pub node: &'a Node,
    /// The list it stands in.
    pub list: List,
}

impl<'a> Container<'a> {
    /// `lifecycle.stopSignal` (KEP-4960): its key, and the signal. `None` also if that cannot stop a program.
    pub fn stop_signal(&self) -> Option<(&'a Node, Signal)> {
        let (key, value) = self.node.get("lifecycle")?.entry("stopSignal")?;
        // Kubernetes writes SIGRTMINPLUS3 for SIGRTMIN+3.
        let name = value.text()?.replace("PLUS", "+").replace("MINUS", "-");
        let signal = Signal::parse(&name).ok()?;
        (![Signal::KILL, Signal::STOP].contains(&signal)).then_some((key, signal))
    }
}

/// The pods of a document; a `List` may have many.
pub fn templates(document: &Document) -> Vec<Template<'_>> {
    let root = &document.root;
    match root.text_of("kind") {
        Some("List") => root.get("items").into_iter().flat_map(Node::items).filter_map(template).collect(),
        _ => template(root).into_iter().collect(),
    }
}

/// The path from an object of that kind to its pod; `None` for a kind without pods.
pub fn path_of(kind: &str) -> Option<&'static [&'static str]> {
    KINDS.iter().find(|(word, _)| *word == kind).map(|(_, path)| *path)
}

fn template(object: &Node) -> Option<Template<'_>> {
    let kind = object.text_of("kind")?;
    let (kind, path) = KINDS.iter().find(|(word, _)| *word == kind)?;
    let pod = object.at(path)?;
    Some(Template { kind, object, pod, spec: pod.get("spec")? })
}

impl<'a> Template<'a> {
    /// `Deployment shop/web`, or as much of it as the object says.
    pub fn title(&self) -> String {
        let metadata = |key| self.object.at(&["metadata", key]).and_then(Node::text);
        let name = metadata("name").or_else(|| metadata("generateName")).unwrap_or("(no name)");
        match metadata("namespace") {
            Some(namespace) => format!("{} {namespace}/{name}", self.kind),
            None => format!("{} {name}", self.kind),
        }
    }

    /// The annotations that reach the pod.
    pub fn annotations(&self) -> Option<&'a Node> {
        self.pod.at(&["metadata", "annotations"]).filter(|node| !node.is_null())
    }

    /// The annotations of the object around the template, which never reach a pod.
    pub fn outer_annotations(&self) -> Option<&'a Node> {
        if std::ptr::eq(self.object, self.pod) {
            return None;
        }
        self.object.at(&["metadata", "annotations"])
    }

    /// All containers in the order in which a kubelet creates them.
    pub fn containers(&self) -> Vec<Container<'a>> {
        let listed = |key: &str| self.spec.get(key).into_iter().flat_map(Node::items);
        let inits = listed("initContainers").map(|node| Container {
            name: node.text_of("name").unwrap_or_default(),
            node,
            list: if node.text_of("restartPolicy") == Some("Always") {
                List::NativeSidecar
            } else {
                List::Init
            },
        });
        let regular = listed("containers").map(|node| Container {
            name: node.text_of("name").unwrap_or_default(),
            node,
            list: List::Regular,
        });
        inits.chain(regular).collect()
    }

    /// The pod's restart policy. The default is Always, which every Deployment has.
    pub fn restart_policy(&self) -> &'a str {
        self.spec.text_of("restartPolicy").unwrap_or("Always")
    }
}

/// A pod's annotations as pairs of text, for the parser, without entries that are not text.
pub fn pairs(annotations: &Node) -> impl Iterator<Item = (&str, &str)> {
    annotations.entries().iter().filter_map(|(key, value)| Some((key.text()?, value.text()?)))
}
