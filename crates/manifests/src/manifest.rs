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

/// The pods of a document whose place is sure: in the kinds that Kubernetes has, and of any other kind, such as a CloneSet or a
/// JobSet, each node below the object with a `spec` that has `containers`. A `List` may have many.
pub fn templates(document: &Document) -> Vec<Template<'_>> {
    let mut all = all_templates(document);
    all.retain(|template| path_of(template.kind).is_some() || !std::ptr::eq(template.object, template.pod));
    all
}

/// The same, and objects of another kind that look like a pod themselves.
pub fn all_templates(document: &Document) -> Vec<Template<'_>> {
    objects(document).into_iter().flat_map(templates_of_any).collect()
}

/// The objects of a document: it is one, or a list of some.
fn objects(document: &Document) -> Vec<&Node> {
    let root = &document.root;
    match root.get("items") {
        Some(items) if is_list(root) => items.items().iter().collect(),
        _ => vec![root],
    }
}

/// Whether it is a list of objects, if it has `items`.
pub fn is_list(root: &Node) -> bool {
    root.text_of("kind").is_some_and(|kind| kind.ends_with("List"))
}

fn templates_of_any(object: &Node) -> Vec<Template<'_>> {
    if let Some(template) = template(object) {
        return vec![template];
    }
    let kind = object.text_of("kind").unwrap_or("object");
    let itself = Some(object).filter(|object| kind != SIDECAR_SET && is_pod(object));
    let mut pods: Vec<&Node> = itself.into_iter().collect();
    add_pods_below(object, &mut pods);
    let with_spec =
        pods.into_iter().filter_map(|pod| Some(Template { kind, object, pod, spec: pod.get("spec")? }));
    with_spec.collect()
}

fn add_pods_below<'a>(node: &'a Node, pods: &mut Vec<&'a Node>) {
    for child in node.children() {
        if is_pod(child) {
            pods.push(child);
        } else {
            add_pods_below(child, pods);
        }
    }
}

/// Whether it looks like a pod.
pub fn is_pod(node: &Node) -> bool {
    let containers = node.get("spec").and_then(|spec| spec.get("containers"));
    containers.is_some_and(|list| !list.items().is_empty())
}

/// A node and all below it, in the order of the text.
pub fn walk(root: &Node) -> impl Iterator<Item = &Node> {
    let mut left = vec![root];
    std::iter::from_fn(move || {
        let node = left.pop()?;
        left.extend(node.children().collect::<Vec<_>>().into_iter().rev());
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
