//! What SidecarSets add to a pod: containers, volumes, variables, secrets and annotations, as Kruise's webhook adds
//! them when the pod is created. Owns what is added, and which added container is which sidecar of the plan; `text`
//! owns the edits of the text.

use std::collections::BTreeMap;

use pod_spec::{Gate, Member, Role};

use super::change::{Injection, Remarks, Sidecar};
use super::{native, probe, tree};
use crate::finding::Severity;
use crate::manifest::{Container, List, Template};
use crate::sidecarset::{
    InjectPolicy, Label, Match, Patch, PatchPolicy, Share, SidecarContainer, SidecarSet, Transfer,
    TransferFrom, Upgrade,
};
use crate::yaml::{Document, Node};

/// The variable by which a program knows that it was injected.
const INJECTED: &str = "IS_INJECTED";
/// In effect without limit: the kubelet probes readiness for as long as the container lives, and never restarts a
/// container for a failure.
const FAILURES_OF_READINESS: u32 = 1_000_000;

/// The namespaces in the same file, by their names.
pub type Namespaces<'a> = BTreeMap<&'a str, &'a Node>;

/// Reads the namespaces of a file.
pub fn namespaces(documents: &[Document]) -> Namespaces<'_> {
    let roots = documents.iter().map(|document| &document.root);
    roots
        .filter(|root| root.text_of("kind") == Some("Namespace"))
        .filter_map(|root| Some((root.at(&["metadata", "name"])?.text()?, root)))
        .collect()
}

/// Whether a SidecarSet selects a pod. If the files leave its namespace open, it does, and a remark says so.
pub fn selects(
    set: &SidecarSet,
    template: &Template<'_>,
    namespaces: &Namespaces<'_>,
    remarks: &mut Remarks<'_>,
) -> bool {
    let labels = template.pod.at(&["metadata", "labels"]);
    let label = |key: &str| labels.and_then(|labels| labels.text_of(key)).map_or(Label::Missing, Label::Is);
    if set.selector.matches(label) != Match::Yes {
        return false;
    }
    let name = template.object.at(&["metadata", "namespace"]).and_then(Node::text);
    if set.namespace.as_deref().zip(name).is_some_and(|(wanted, name)| wanted != name) {
        return false;
    }
    let of_namespace = |key: &str| match name {
        Some(name) if key == "kubernetes.io/metadata.name" => Label::Is(name),
        _ => match name.and_then(|name| namespaces.get(name)) {
            Some(namespace) => {
                let found = namespace.at(&["metadata", "labels"]).and_then(|labels| labels.text_of(key));
                found.map_or(Label::Missing, Label::Is)
            }
            None => Label::Unknown,
        },
    };
    let matches = set.namespace_selector.as_ref().map(|selector| selector.matches(of_namespace));
    if matches == Some(Match::No) {
        return false;
    }
    if matches == Some(Match::Unknown) || (set.namespace.is_some() && name.is_none()) {
        let what =
            format!("taken to be one that SidecarSet {:?} is for: no file says that it is not", set.name);
        remarks.say(Severity::Warning, template.object, "metadata.namespace".to_owned(), what);
    }
    true
}

/// What the SidecarSets that select a pod add to it. `None` if that is impossible; then a remark says why.
pub fn injection(
    template: &Template<'_>,
    sets: &[&SidecarSet],
    remarks: &mut Remarks<'_>,
) -> Option<Injection> {
    let mut pod = Pod { template, containers: template.containers(), result: Injection::default() };
    for set in sets {
        let mut remarks = Remarks { file: &set.file, list: &mut *remarks.list };
        for container in &set.init_containers {
            let node = pod.container(set, container, &mut remarks)?;
            pod.claim(set, &container.name, List::Init, &container.node, &mut remarks)?;
            pod.result.inits.push(node);
        }
        for container in &set.containers {
            pod.sidecar(set, container, &mut remarks)?;
        }
        pod.secrets(set);
        for patch in &set.patches {
            pod.patch(patch, &mut remarks)?;
        }
    }
    Some(pod.result)
}

struct Pod<'a> {
    template: &'a Template<'a>,
    containers: Vec<Container<'a>>,
    result: Injection,
}

impl Pod<'_> {
    /// A container as it goes into the pod; it still has the fields that the plan takes over.
    fn container(
        &mut self,
        set: &SidecarSet,
        own: &SidecarContainer,
        remarks: &mut Remarks<'_>,
    ) -> Option<Node> {
        let mut node = own.node.clone();
        for list in ["volumeMounts", "volumeDevices"] {
            for mount in node.get(list).map(Node::items).unwrap_or_default() {
                self.volume(set, mount, remarks)?;
            }
        }
        let mut variables = vec![variable(INJECTED, "true")];
        for transfer in &own.transfers {
            variables.extend(self.transferred(own, transfer, remarks));
        }
        let injected = |container: &&Container<'_>| {
            let variables = container.node.get("env").map(Node::items).unwrap_or_default();
            !variables.iter().any(|it| it.text_of("name") == Some(INJECTED))
        };
        for container in self.containers.iter().filter(injected) {
            let items = |key: &str| container.node.get(key).map(Node::items).unwrap_or_default();
            if own.mounts == Share::Pod {
                let mounts = items("volumeMounts");
                let expressions = mounts.iter().filter_map(|mount| mount.text_of("subPathExpr"));
                // A mount with subPathExpr fails without the variables that it names.
                let named = expressions.flat_map(variables_of).filter_map(|name| find(items("env"), name));
                variables.extend(named.cloned());
                add_missing(&mut node, "volumeMounts", "mountPath", mounts.iter().cloned());
            }
            if own.devices == Share::Pod {
                add_missing(&mut node, "volumeDevices", "devicePath", items("volumeDevices").iter().cloned());
            }
        }
        add_missing(&mut node, "env", "name", variables);
        Some(node)
    }

    fn transferred(
        &self,
        own: &SidecarContainer,
        transfer: &Transfer,
        remarks: &mut Remarks<'_>,
    ) -> Vec<Node> {
        let metadata = |list: &str, key: &str| self.template.pod.at(&["metadata", list])?.text_of(key);
        let source = match &transfer.from {
            TransferFrom::Container(name) => Some(name.as_str()),
            TransferFrom::Label(key) => metadata("labels", key),
            TransferFrom::Annotation(key) => metadata("annotations", key),
        };
        let title = self.template.title();
        let mut say = |what: String| {
            let field = format!("containers[{}].transferEnv", own.name);
            remarks.say_at(Severity::Warning, transfer.line, field, what);
        };
        let Some(source) = source else {
            say(format!("{title} has no such label or annotation"));
            return Vec::new();
        };
        let container = self.containers.iter().find(|container| container.name == source);
        let variables = container.and_then(|it| it.node.get("env")).map(Node::items).unwrap_or_default();
        let mut found = Vec::new();
        for name in &transfer.names {
            match find(variables, name) {
                Some(variable) => found.push(variable.clone()),
                None => say(format!("{title} has no variable {name} in a container {source:?}")),
            }
        }
        found
    }

    /// Adds the volume of a mount: the SidecarSet's, unless the pod has a volume of that name.
    fn volume(&mut self, set: &SidecarSet, mount: &Node, remarks: &mut Remarks<'_>) -> Option<()> {
        let name = mount.text_of("name").unwrap_or_default();
        let own = self.template.spec.get("volumes").map(Node::items).unwrap_or_default();
        let there = find(own, name).or_else(|| find(&self.result.volumes, name));
        match (there, find(&set.volumes, name)) {
            (Some(there), Some(wanted)) if !tree::same(there, wanted) => {
                let title = self.template.title();
                let what = format!("{title} has another volume of that name already: that one is mounted");
                remarks.say(Severity::Warning, wanted, format!("volumes[{name}]"), what);
            }
            (None, Some(wanted)) => self.result.volumes.push(wanted.clone()),
            (Some(_), _) => {}
            (None, None) => {
                let claims = self.template.object.at(&["spec", "volumeClaimTemplates"]).map(Node::items);
                let named = |claim: &Node| claim.at(&["metadata", "name"]).and_then(Node::text) == Some(name);
                if !claims.unwrap_or_default().iter().any(named) {
                    let what = format!(
                        "neither it nor {} has a volume {name:?}: left as it is",
                        self.template.title()
                    );
                    remarks.say(Severity::Error, mount, "volumeMounts".to_owned(), what);
                    return None;
                }
            }
        }
        Some(())
    }

    /// Puts one of the SidecarSet's `containers` into the pod and into the plan.
    fn sidecar(&mut self, set: &SidecarSet, own: &SidecarContainer, remarks: &mut Remarks<'_>) -> Option<()> {
        let standby = (own.upgrade == Upgrade::Hot).then(|| without_watchers(own, remarks));
        let kept = standby.as_ref().unwrap_or(own);
        let mut node = self.container(set, kept, remarks)?;
        let container = Container { name: &own.name, node: &kept.node, list: List::Regular };
        let mut member = Member::new(&own.name, Role::Sidecar, 0);
        // A sidecar that starts before all other containers is never held.
        let is_first = self.result.sidecars.is_empty() && own.policy == InjectPolicy::Before;
        let place = usize::from(!is_first || self.containers.iter().any(|it| it.list == List::NativeSidecar));
        let policy = native::policy_of(self.template);
        let removed = native::sidecar(&container, policy, place, &mut member, remarks)?;
        removed.iter().for_each(|path| node.remove_at(path));
        if own.policy == InjectPolicy::Before && member.gate == Gate::Running {
            gate_of_readiness(own, &mut member, remarks);
        }
        let pairs = match own.upgrade {
            Upgrade::Cold => vec![(member, node)],
            Upgrade::Hot => self.pair(own, member, &node),
        };
        for (member, node) in &pairs {
            match (self.claim(set, &member.name, List::Regular, &own.node, remarks)?, own.policy) {
                (Insertion::Instead(index), _) => self.result.replaced.push((index, node.clone())),
                (Insertion::New, InjectPolicy::Before) => self.result.front.push(node.clone()),
                (Insertion::New, InjectPolicy::After) => self.result.back.push(node.clone()),
            }
        }
        let members = pairs.into_iter().map(|(member, _)| member).collect();
        self.result.sidecars.push(Sidecar { policy: own.policy, members });
        Some(())
    }

    /// Claims a name and says where the container goes. As with Kruise, the container replaces one of the pod's
    /// `containers` that has the same name.
    fn claim(
        &mut self,
        set: &SidecarSet,
        name: &str,
        list: List,
        node: &Node,
        remarks: &mut Remarks<'_>,
    ) -> Option<Insertion> {
        let title = self.template.title();
        let field =
            format!("{}[{name}]", if list == List::Regular { "containers" } else { "initContainers" });
        if self.result.files.insert(name.to_owned(), set.file.clone()).is_some() {
            let what = format!("another SidecarSet has one of that name for {title} too: left as it is");
            remarks.say(Severity::Error, node, field, what);
            return None;
        }
        let Some(own) = self.containers.iter().find(|container| container.name == name) else {
            return Some(Insertion::New);
        };
        if list != List::Regular || own.list != List::Regular {
            remarks.say(Severity::Error, node, field, format!("{title} has one of that name: left as it is"));
            return None;
        }
        remarks.say(
            Severity::Warning,
            node,
            field,
            format!("{title} has one of that name: this takes its place"),
        );
        let mut regular = self.containers.iter().filter(|container| container.list == List::Regular);
        regular.position(|container| container.name == name).map(Insertion::Instead)
    }

    /// The two containers of a sidecar with HotUpgrade. Kruise gives the second an empty image until it is needed.
    /// podshim holds a standby before its program starts, so here it has the image that it will run.
    fn pair(&mut self, own: &SidecarContainer, mut member: Member, node: &Node) -> Vec<(Member, Node)> {
        let migrate = own.node.at(&["lifecycle", "postStart", "exec", "command"]);
        member.migrate =
            migrate.map(|words| words.items().iter().filter_map(Node::text).map(str::to_owned).collect());
        let names = [format!("{}-1", own.name), format!("{}-2", own.name)];
        // The versions that Kruise writes for the first start, and for the container that takes over.
        let versions = [("1", "0"), ("2", "1")];
        let both = names.into_iter().zip(versions).map(|(name, (version, other))| {
            let mut node = node.clone();
            let mut member = member.clone();
            let keys =
                [("SIDECARSET_VERSION", "version", version), ("SIDECARSET_VERSION_ALT", "versionalt", other)];
            for (variable, word, value) in keys {
                let key = format!("{word}.sidecarset.kruise.io/{name}");
                add_missing(&mut node, "env", "name", [variable_of_annotation(variable, &key)]);
                self.result.annotations.push((key, value.to_owned()));
            }
            node.set("name", Node::string(&name));
            member.name = name;
            (member, node)
        });
        both.collect()
    }

    fn secrets(&mut self, set: &SidecarSet) {
        let own = self.template.spec.get("imagePullSecrets").map(Node::items).unwrap_or_default();
        for secret in &set.image_pull_secrets {
            let name = secret.text_of("name").unwrap_or_default();
            if find(own, name).is_none() && find(&self.result.secrets, name).is_none() {
                self.result.secrets.push(secret.clone());
            }
        }
    }

    fn patch(&mut self, patch: &Patch, remarks: &mut Remarks<'_>) -> Option<()> {
        for (key, value) in &patch.annotations {
            let added = self.result.annotations.iter().rev().find(|(name, _)| name == key);
            let own = self.template.annotations().and_then(|own| own.text_of(key));
            let there = added.map(|(_, value)| value.as_str()).or(own).filter(|there| !there.is_empty());
            let value = match (there, patch.policy) {
                (Some(_), PatchPolicy::Retain) => continue,
                (Some(there), PatchPolicy::MergePatchJson) => match merged(there, value) {
                    Ok(value) => value,
                    Err(error) => {
                        let what = format!("{key} cannot be merged, left as it is: {error}");
                        remarks.say(Severity::Error, self.template.spec, "patchPodMetadata".to_owned(), what);
                        return None;
                    }
                },
                _ => value.clone(),
            };
            self.result.annotations.retain(|(name, _)| name != key);
            self.result.annotations.push((key.clone(), value));
        }
        Some(())
    }
}

/// Where an added container goes: `Instead` of the one with that index in `containers`.
enum Insertion {
    New,
    Instead(usize),
}

/// A container of a pair, without the fields that would harm its held member. V3: if the kubelet kills that member for
/// a failed probe and recreates it, a switch begins. The postStart hook migrates, so it runs only in a switch.
fn without_watchers(own: &SidecarContainer, remarks: &mut Remarks<'_>) -> SidecarContainer {
    let field = |path: &str| format!("containers[{}].{path}", own.name);
    let mut kept = own.clone();
    let hook = own.node.get("lifecycle").and_then(|lifecycle| lifecycle.entry("postStart"));
    if let Some((key, _)) = hook.filter(|(_, hook)| hook.at(&["exec", "command"]).is_none()) {
        let what = "not carried over: only a command can migrate (podshim.io/migrate)";
        remarks.say(Severity::Warning, key, field("lifecycle.postStart"), what);
    }
    kept.node.remove_at(&["lifecycle", "postStart"]);
    if kept.node.get("lifecycle").is_some_and(|lifecycle| lifecycle.entries().is_empty()) {
        kept.node.remove("lifecycle");
    }
    for probe in ["livenessProbe", "readinessProbe"] {
        if let Some((key, _)) = own.node.entry(probe) {
            let what = "taken from the kubelet: the one of the two that is held would fail it";
            remarks.say(Severity::Warning, key, field(probe), what);
            kept.node.remove(probe);
        }
    }
    let what = format!(
        "the versions stay 1 and 2: the tool that lets {}-1 take over again raises its annotation first",
        own.name
    );
    remarks.say(Severity::Warning, &own.node, field("env[SIDECARSET_VERSION]"), what);
    kept
}

/// The gate of a sidecar without a startup probe: it opens when its readiness probe first makes it ready.
pub fn gate_of_readiness(own: &SidecarContainer, member: &mut Member, remarks: &mut Remarks<'_>) {
    let Some((key, node)) = own.node.entry("readinessProbe") else { return };
    let translated = probe::gate(&own.node, node);
    let Some(Gate::Probe { action, mut timing }) = translated.gate else { return };
    timing.failures = FAILURES_OF_READINESS;
    timing.successes =
        node.number_of("successThreshold").and_then(|count| u32::try_from(count).ok()).unwrap_or(1).max(1);
    member.gate = Gate::Probe { action, timing };
    let what = format!(
        "also its gate, for it has no startupProbe (if it is ready only with the mains, take podshim.io/ready.{} away)",
        own.name
    );
    remarks.say(Severity::Warning, key, format!("containers[{}].readinessProbe", own.name), what);
}

/// Merges JSON into JSON (RFC 7386).
fn merged(there: &str, patch: &str) -> Result<String, serde_json::Error> {
    fn merge(target: &mut serde_json::Value, patch: serde_json::Value) {
        let serde_json::Value::Object(patch) = patch else {
            *target = patch;
            return;
        };
        if !target.is_object() {
            *target = serde_json::Value::Object(serde_json::Map::new());
        }
        if let Some(target) = target.as_object_mut() {
            for (key, value) in patch {
                if value.is_null() {
                    target.remove(&key);
                } else {
                    merge(target.entry(key).or_insert(serde_json::Value::Null), value);
                }
            }
        }
    }
    let mut target = serde_json::from_str(there)?;
    merge(&mut target, serde_json::from_str(patch)?);
    Ok(target.to_string())
}

/// The item of that name.
fn find<'a>(items: &'a [Node], name: &str) -> Option<&'a Node> {
    items.iter().find(|item| item.text_of("name") == Some(name))
}

/// Adds to a list the items whose `key` has a value that the list does not have yet.
fn add_missing(node: &mut Node, list: &str, key: &str, items: impl IntoIterator<Item = Node>) {
    for item in items {
        let own = node.get(list).map(Node::items).unwrap_or_default();
        if !own.iter().any(|own| own.text_of(key) == item.text_of(key)) {
            node.extend(list, [item]);
        }
    }
}

/// The variables that a path names as `$(NAME)`.
fn variables_of(path: &str) -> impl Iterator<Item = &str> {
    path.split("$(").skip(1).filter_map(|rest| rest.split_once(')')).map(|(name, _)| name)
}

fn variable(name: &str, value: &str) -> Node {
    Node::mapping(vec![("name", Node::string(name)), ("value", Node::string(value))])
}

fn variable_of_annotation(name: &str, key: &str) -> Node {
    let path = Node::mapping(vec![("fieldPath", Node::string(&format!("metadata.annotations['{key}']")))]);
    let from = Node::mapping(vec![("fieldRef", path)]);
    Node::mapping(vec![("name", Node::string(name)), ("valueFrom", from)])
}
