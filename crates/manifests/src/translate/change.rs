//! What a translation does to a pod, as data: what SidecarSets add, what becomes of its own sidecars, and the remarks
//! on what could not be carried over. `inject` and `native` decide it; `tree` and `text` carry it out.

use std::collections::{BTreeMap, BTreeSet};

use pod_spec::Member;

use crate::finding::{Finding, Severity};
use crate::sidecarset::InjectPolicy;
use crate::yaml::Node;

/// A translated file.
#[derive(Clone, Debug)]
pub struct Translated {
    /// The whole file; documents that need no translation are unchanged.
    pub text: String,
    /// What could not be carried over, or is not quite the same. An error: the pod was left as it was, or its
    /// translation does not pass `podshim check`.
    pub remarks: Vec<Finding>,
    /// How many pods got a plan.
    pub pods: usize,
    /// The SidecarSets that select a pod of the file, by their index in `Target::sidecar_sets`.
    pub selecting: BTreeSet<usize>,
}

/// What is added to a pod.
#[derive(Clone, Debug, Default)]
pub struct Injection {
    /// Containers to add in front of the pod's own.
    pub front: Vec<Node>,
    /// Containers to add behind the pod's own.
    pub back: Vec<Node>,
    /// Containers that replace one of the pod's own, by its index in `containers`.
    pub replaced: Vec<(usize, Node)>,
    /// Annotations that the pod gets, or that get another value.
    pub annotations: Vec<(String, String)>,
    /// The sidecars for the plan, in the order of the SidecarSets.
    pub sidecars: Vec<Sidecar>,
    /// The file that each added container is from, by the container's name.
    pub files: BTreeMap<String, String>,
    pub inits: Vec<Node>,
    pub volumes: Vec<Node>,
    pub secrets: Vec<Node>,
}

/// A sidecar: one container, or a standby pair (V1).
#[derive(Clone, Debug)]
pub struct Sidecar {
    /// Whether it starts before the mains.
    pub policy: InjectPolicy,
    /// One, or the two of a pair.
    pub members: Vec<Member>,
}

impl Injection {
    /// Lists of the pod's spec that grow at their end.
    pub fn lists(&self) -> [(&'static str, &[Node]); 3] {
        [("initContainers", &self.inits), ("volumes", &self.volumes), ("imagePullSecrets", &self.secrets)]
    }
}

/// The changes to a pod.
#[derive(Clone, Debug)]
pub struct Change {
    /// How many of `initContainers` stay; all after these move to the front of `containers`.
    pub stay: usize,
    /// For each container that moves, the fields to remove; each is a path of keys.
    pub removed: Vec<Vec<Vec<&'static str>>>,
    /// Annotations that the pod gets.
    pub annotations: Vec<(String, String)>,
    /// The RuntimeClass that the pod gets, if it has none.
    pub runtime_class: Option<String>,
}

/// Collects remarks about one file.
pub struct Remarks<'a> {
    /// The file.
    pub file: &'a str,
    /// The remarks of all files so far.
    pub list: &'a mut Vec<Finding>,
}

impl Remarks<'_> {
    /// Adds a remark on a field that stands at a node.
    pub fn say(&mut self, severity: Severity, node: &Node, field: String, what: impl Into<String>) {
        self.say_at(severity, node.start.line, field, what);
    }

    /// Adds a remark on a field that stands at a line.
    pub fn say_at(&mut self, severity: Severity, line: usize, field: String, what: impl Into<String>) {
        self.list.push(Finding::new(severity, self.file, line, what).key(&field));
    }
}
