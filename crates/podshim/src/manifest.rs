//! Finds the pods in Kubernetes manifests: the kinds that have a pod template, what looks like one in any other object, and the
//! fields of a template that matter to podshim. Owns the paths; judges nothing.

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
    /// `Deployment`, `Pod`, `JobSet`, ...
    pub kind: &'a str,
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

/// An object whose `spec.containers` are no pod's, but added to pods.
const SIDECAR_SET: &str = "SidecarSet";

/// The pods of a document in the kinds that Kubernetes has; a `List` may have many.
pub fn templates(document: &Document) -> Vec<Template<'_>> {
    let root = &document.root;
    match root.text_of("kind") {
        Some("List") => root.get("items").into_iter().flat_map(Node::items).filter_map(template).collect(),
        _ => template(root).into_iter().collect(),
    }
}

/// The pods of a document in any kind: of one that Kubernetes does not have, such as a CloneSet or a JobSet, each node with a
/// `spec` that has `containers`.
pub fn all_templates(document: &Document) -> Vec<Template<'_>> {
    objects(document).into_iter().flat_map(templates_of_any).collect()
}

/// The objects of a document: it is one, or a list of some.
fn objects(document: &Document) -> Vec<&Node> {
    let root = &document.root;
    match (root.text_of("kind"), root.get("items")) {
        (Some(kind), Some(items)) if kind.ends_with("List") => items.items().iter().collect(),
        _ => vec![root],
    }
}

fn templates_of_any(object: &Node) -> Vec<Template<'_>> {
    if let Some(template) = template(object) {
        return vec![template];
    }
    let kind = object.text_of("kind").unwrap_or("object");
    let found = walk(object).filter(|pod| !(kind == SIDECAR_SET && std::ptr::eq(*pod, object)));
    let with_spec = found.filter_map(|pod| {
        let spec = pod.get("spec")?;
        let has_containers = spec.get("containers").is_some_and(|list| !list.items().is_empty());
        has_containers.then_some(Template { kind, object, pod, spec })
    });
    with_spec.collect()
}

/// A node and all below it, in the order of the text.
pub fn walk(root: &Node) -> impl Iterator<Item = &Node> {
    let mut left = vec![root];
    std::iter::from_fn(move || {
        let node = left.pop()?;
        let below = node.items().iter().chain(node.entries().iter().map(|(_, value)| value));
        left.extend(below.collect::<Vec<_>>().into_iter().rev());
        Some(node)
    })
}

/// The mappings of a SidecarSet whose annotations Kruise adds to pods.
pub fn patched_annotations(document: &Document) -> impl Iterator<Item = &Node> {
    let sets = objects(document).into_iter().filter(|object| object.text_of("kind") == Some(SIDECAR_SET));
    let patches = sets.filter_map(|set| set.at(&["spec", "patchPodMetadata"])).flat_map(Node::items);
    patches.filter_map(|patch| patch.get("annotations"))
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

    /// Whether a controller replaces the old pods as new ones get ready. One of an unknown kind is taken for a job's by its restart
    /// policy alone.
    pub fn is_rolled_out(&self) -> bool {
        let is_known = path_of(self.kind).is_some();
        !matches!(self.kind, "Pod" | "Job" | "CronJob") && (is_known || self.restart_policy() == "Always")
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
