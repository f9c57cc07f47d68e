//! Reads the SidecarSets of OpenKruise from a file. Owns which pods each selects, what it adds to them, and a remark
//! for each field that only Kruise's controller can act on. `translate` owns what becomes of a pod.

mod error;
mod selector;

pub use error::SidecarSetError;
pub use selector::{Label, Match, Selector};

use crate::finding::{Finding, Severity};
use crate::source::Source;
use crate::yaml::{self, Node};

/// The fields of a SidecarSet's container that Kubernetes does not know.
const OWN_FIELDS: [&str; 6] = [
    "podInjectPolicy",
    "shareVolumePolicy",
    "shareVolumeDevicePolicy",
    "transferEnv",
    "upgradeStrategy",
    "resourcesPolicy",
];

/// A SidecarSet.
#[derive(Clone, Debug)]
pub struct SidecarSet {
    /// The file it is from.
    pub file: String,
    /// Its name; empty if it has none.
    pub name: String,
    /// The line of its selector, for remarks.
    pub line: usize,
    /// Selects pods by their labels. Never empty.
    pub selector: Selector,
    /// If set, it selects pods of this namespace only.
    pub namespace: Option<String>,
    /// If set, selects namespaces by their labels.
    pub namespace_selector: Option<Selector>,
    /// Containers for `initContainers`, sorted by name as Kruise sorts them.
    pub init_containers: Vec<SidecarContainer>,
    /// Containers for `containers`.
    pub containers: Vec<SidecarContainer>,
    /// Volumes that its containers may mount.
    pub volumes: Vec<Node>,
    /// Secrets for pulling images.
    pub image_pull_secrets: Vec<Node>,
    /// Annotations for the pods.
    pub patches: Vec<Patch>,
}

/// A container of a SidecarSet.
#[derive(Clone, Debug)]
pub struct SidecarContainer {
    /// Never empty.
    pub name: String,
    /// The fields that Kubernetes knows, with their places in the SidecarSet's file.
    pub node: Node,
    /// Whether it goes to the front or the end of `containers`.
    pub policy: InjectPolicy,
    /// How a new image gets into running pods.
    pub upgrade: Upgrade,
    /// Whether it mounts what the pod's own containers mount.
    pub mounts: Share,
    /// Whether it has the block devices of the pod's own containers.
    pub devices: Share,
    /// The variables it takes over from containers of the pod.
    pub transfers: Vec<Transfer>,
}

/// `podInjectPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InjectPolicy {
    /// In front of the pod's own containers.
    Before,
    /// Behind them.
    After,
}

/// `upgradeStrategy.upgradeType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upgrade {
    /// The old container ends before the new one begins.
    Cold,
    /// A second container takes over while the first one still runs.
    Hot,
}

/// `shareVolumePolicy.type`, `shareVolumeDevicePolicy.type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// The container has only its own.
    Own,
    /// The container also has those of the pod's containers.
    Pod,
}

/// An entry of `transferEnv`.
#[derive(Clone, Debug)]
pub struct Transfer {
    /// Its line, for remarks.
    pub line: usize,
    /// The container that has the variables.
    pub from: TransferFrom,
    /// The names of the variables.
    pub names: Vec<String>,
}

/// How a transfer names the container.
#[derive(Clone, Debug)]
pub enum TransferFrom {
    /// By its name.
    Container(String),
    /// By a label of the pod.
    Label(String),
    /// By an annotation of the pod.
    Annotation(String),
}

/// An entry of `patchPodMetadata`.
#[derive(Clone, Debug)]
pub struct Patch {
    /// Annotations for the pod, as key and value.
    pub annotations: Vec<(String, String)>,
    /// What happens to an annotation that the pod already has.
    pub policy: PatchPolicy,
}

/// `patchPodMetadata[].patchPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchPolicy {
    /// The pod's value stays.
    Retain,
    /// The SidecarSet's value replaces it.
    Overwrite,
    /// Both values are JSON; the SidecarSet's is merged into the pod's (RFC 7386).
    MergePatchJson,
}

/// Reads all SidecarSets of a file and ignores other objects.
///
/// # Errors
/// The file is not YAML, has no SidecarSet, or one of them is wrong.
pub fn read(source: &Source, remarks: &mut Vec<Finding>) -> Result<Vec<SidecarSet>, SidecarSetError> {
    let wrong = |error: yaml::YamlError| SidecarSetError {
        line: error.line,
        problem: format!("no YAML: {}", error.problem),
    };
    let mut sets = Vec::new();
    for document in yaml::documents(&source.text).map_err(wrong)? {
        let root = &document.root;
        let listed = root.get("items").map(Node::items).unwrap_or_default();
        for node in std::iter::once(root).chain(listed) {
            if node.text_of("kind") == Some("SidecarSet") {
                sets.push(SidecarSet::read(&source.name, node, remarks)?);
            }
        }
    }
    if sets.is_empty() {
        return Err(SidecarSetError { line: 1, problem: "there is no SidecarSet in it".to_owned() });
    }
    Ok(sets)
}

impl SidecarSet {
    fn read(file: &str, node: &Node, remarks: &mut Vec<Finding>) -> Result<Self, SidecarSetError> {
        let spec = node.get("spec").ok_or_else(|| SidecarSetError::at(node, "a SidecarSet without spec"))?;
        // Kruise refuses such a set; one that is in a file only must not select every pod.
        let none = || SidecarSetError::at(spec, "spec.selector: a SidecarSet without one selects no pod");
        let (key, selector_node) = spec.entry("selector").ok_or_else(none)?;
        let selector = Selector::read(selector_node)?;
        if selector.is_empty() {
            return Err(none());
        }
        say_what_is_not_carried_over(file, spec, remarks);
        let containers = |key: &str| -> Result<Vec<SidecarContainer>, SidecarSetError> {
            spec.get(key).map(Node::items).unwrap_or_default().iter().map(SidecarContainer::read).collect()
        };
        let (mut init_containers, containers) = (containers("initContainers")?, containers("containers")?);
        let mut names = std::collections::BTreeSet::new();
        for container in init_containers.iter().chain(&containers) {
            if !names.insert(&container.name) {
                let problem = format!("the name {:?} is there twice", container.name);
                return Err(SidecarSetError::at(&container.node, problem));
            }
        }
        init_containers.sort_by(|one, other| one.name.cmp(&other.name));
        let items = |key: &str| spec.get(key).map(Node::items).unwrap_or_default();
        Ok(Self {
            file: file.to_owned(),
            name: node.at(&["metadata", "name"]).and_then(Node::text).unwrap_or_default().to_owned(),
            line: key.start.line,
            selector,
            namespace: spec.text_of("namespace").filter(|text| !text.is_empty()).map(str::to_owned),
            namespace_selector: spec.get("namespaceSelector").map(Selector::read).transpose()?,
            init_containers,
            containers,
            volumes: items("volumes").to_vec(),
            image_pull_secrets: items("imagePullSecrets").to_vec(),
            patches: items("patchPodMetadata").iter().map(Patch::read).collect::<Result<_, _>>()?,
        })
    }
}

/// Adds a remark for each field that only a controller of running pods can act on, and for each unknown field.
fn say_what_is_not_carried_over(file: &str, spec: &Node, remarks: &mut Vec<Finding>) {
    let rolls = "for Kruise's controller: new images come with the workload's own roll-out";
    for (key, value) in spec.entries() {
        let what = match key.text().unwrap_or_default() {
            "selector" | "namespace" | "namespaceSelector" | "initContainers" | "containers" | "volumes"
            | "imagePullSecrets" | "patchPodMetadata" => continue,
            "updateStrategy" => rolls,
            "revisionHistoryLimit" => continue,
            "injectionStrategy" if value.get("revision").is_some() => {
                "not carried over: what this file says is injected, not an earlier revision"
            }
            "injectionStrategy" if value.text_of("paused") == Some("true") => {
                "paused: injected all the same, for that is what is asked here"
            }
            "injectionStrategy" => continue,
            _ => "not known: not carried over",
        };
        let field = format!("spec.{}", key.text().unwrap_or_default());
        remarks.push(Finding::new(Severity::Warning, file, key.start.line, what).key(&field));
    }
    for list in ["initContainers", "containers"] {
        for node in spec.get(list).map(Node::items).unwrap_or_default() {
            let name = node.text_of("name").unwrap_or_default();
            let mut say = |key: &Node, path: &str, what: &str| {
                let field = format!("spec.{list}[{name}].{path}");
                remarks.push(Finding::new(Severity::Warning, file, key.start.line, what).key(&field));
            };
            if let Some((key, _)) = node.entry("resourcesPolicy") {
                say(key, "resourcesPolicy", "not carried over: its resources are what they say");
            }
            if let Some((key, _)) =
                node.get("upgradeStrategy").and_then(|it| it.entry("hotUpgradeEmptyImage"))
            {
                let what = "not needed: the standby is held without its program";
                say(key, "upgradeStrategy.hotUpgradeEmptyImage", what);
            }
        }
    }
}

impl SidecarContainer {
    fn read(node: &Node) -> Result<Self, SidecarSetError> {
        let name = node.text_of("name").filter(|name| !name.is_empty());
        let name = name.ok_or_else(|| SidecarSetError::at(node, "a container without a name"))?;
        let share = |key: &str| match node.at(&[key, "type"]).and_then(Node::text) {
            None | Some("disabled" | "") => Ok(Share::Own),
            Some("enabled") => Ok(Share::Pod),
            Some(other) => Err(SidecarSetError::word(node, key, other, &["enabled", "disabled"])),
        };
        let mut stripped = node.clone();
        OWN_FIELDS.iter().for_each(|field| stripped.remove(field));
        let transfers = node.get("transferEnv").map(Node::items).unwrap_or_default();
        Ok(Self {
            name: name.to_owned(),
            policy: match node.text_of("podInjectPolicy") {
                None | Some("BeforeAppContainer" | "") => InjectPolicy::Before,
                Some("AfterAppContainer") => InjectPolicy::After,
                Some(other) => {
                    let words = ["BeforeAppContainer", "AfterAppContainer"];
                    return Err(SidecarSetError::word(node, "podInjectPolicy", other, &words));
                }
            },
            upgrade: match node.at(&["upgradeStrategy", "upgradeType"]).and_then(Node::text) {
                None | Some("ColdUpgrade" | "") => Upgrade::Cold,
                Some("HotUpgrade") => Upgrade::Hot,
                Some(other) => {
                    let words = ["ColdUpgrade", "HotUpgrade"];
                    return Err(SidecarSetError::word(node, "upgradeStrategy.upgradeType", other, &words));
                }
            },
            mounts: share("shareVolumePolicy")?,
            devices: share("shareVolumeDevicePolicy")?,
            transfers: transfers.iter().map(Transfer::read).collect::<Result<_, _>>()?,
            node: stripped,
        })
    }
}

impl Transfer {
    fn read(node: &Node) -> Result<Self, SidecarSetError> {
        let path = node.at(&["sourceContainerNameFrom", "fieldRef", "fieldPath"]).and_then(Node::text);
        let from = match (path, node.text_of("sourceContainerName")) {
            (Some(path), _) => {
                let named = |field: &str| {
                    path.strip_prefix(field)?.strip_prefix("['")?.strip_suffix("']").map(str::to_owned)
                };
                let label = named("metadata.labels").map(TransferFrom::Label);
                label.or_else(|| named("metadata.annotations").map(TransferFrom::Annotation)).ok_or_else(
                    || {
                        let words = ["metadata.labels['KEY']", "metadata.annotations['KEY']"];
                        SidecarSetError::word(node, "transferEnv: fieldPath", path, &words)
                    },
                )?
            }
            (None, Some(name)) => TransferFrom::Container(name.to_owned()),
            (None, None) => {
                return Err(SidecarSetError::at(node, "transferEnv: it needs a sourceContainerName"));
            }
        };
        let listed = node.get("envNames").map(Node::items).unwrap_or_default();
        let mut names: Vec<String> =
            node.get("envName").into_iter().chain(listed).filter_map(Node::text).map(str::to_owned).collect();
        names.sort();
        names.dedup();
        if names.is_empty() {
            return Err(SidecarSetError::at(node, "transferEnv: it needs an envName"));
        }
        Ok(Self { line: node.start.line, from, names })
    }
}

impl Patch {
    fn read(node: &Node) -> Result<Self, SidecarSetError> {
        let policy = match node.text_of("patchPolicy") {
            None | Some("Retain" | "") => PatchPolicy::Retain,
            Some("Overwrite") => PatchPolicy::Overwrite,
            Some("MergePatchJson") => PatchPolicy::MergePatchJson,
            Some(other) => {
                let words = ["Retain", "Overwrite", "MergePatchJson"];
                return Err(SidecarSetError::word(node, "patchPolicy", other, &words));
            }
        };
        let entries = node.get("annotations").map(Node::entries).unwrap_or_default();
        let annotations = entries
            .iter()
            .filter_map(|(key, value)| Some((key.text()?.to_owned(), value.text()?.to_owned())))
            .collect();
        Ok(Self { annotations, policy })
    }
}
