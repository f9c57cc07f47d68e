//! A SidecarSet that has Kruise itself write the plan: its `patchPodMetadata` gets each sidecar's role and gate. Owns what a
//! SidecarSet can say of a plan, with a remark for what it cannot; its containers stay as they are, for Kruise recreates
//! nothing for an annotation.

use pod_spec::{Gate, Member, Role};

use super::change::{Remarks, Translated};
use super::rewrite::{Rewrite, rewrite};
use super::{edit, inject, probe};
use crate::finding::{Finding, Severity};
use crate::sidecarset::{self, InjectPolicy, SidecarContainer, SidecarSet, SidecarSetError, Upgrade};
use crate::source::Source;
use crate::yaml::{self, Node, Value};

const PATCHES: &str = "patchPodMetadata";
/// What Kubernetes allows for the part of a key after the slash.
const MAX_KEY_NAME: usize = 63;

/// Rewrites the SidecarSets of a file.
///
/// # Errors
/// The file is not YAML, has no SidecarSet, or one of them is wrong.
pub fn in_place(source: &Source) -> Result<Translated, SidecarSetError> {
    let sets = sidecarset::read(source, &mut Vec::new())?;
    let wrong = |error: yaml::YamlError| SidecarSetError { line: error.line, problem: error.problem };
    let documents = yaml::documents(&source.text).map_err(wrong)?;
    let lines: Vec<&str> = source.text.lines().collect();
    let (mut list, mut rewrites) = (Vec::new(), Vec::new());
    let mut remaining = sets.iter();
    let mut wanted = documents.clone();
    for (index, (document, wanted)) in documents.iter().zip(&mut wanted).enumerate() {
        let mut edits = Ok(Vec::new());
        for (node, wanted) in sets_of(&document.root).into_iter().zip(sets_of_mut(&mut wanted.root)) {
            let Some(set) = remaining.next() else { break };
            let mut remarks = Remarks { file: &source.name, list: &mut list };
            let patch = patch(set, &mut remarks);
            let Some(patch) = patch else { continue };
            edits = edits.and_then(|mut edits: Vec<edit::Edit>| {
                edits.push(insertion(&lines, node, &patch).ok_or("its layout is unusual")?);
                Ok(edits)
            });
            insert(wanted, patch);
        }
        if edits.as_ref().is_ok_and(Vec::is_empty) {
            continue;
        }
        rewrites.push((index, document.root.start.line, edits));
    }
    let rewrites: Vec<Rewrite<'_>> = rewrites
        .into_iter()
        .map(|(index, line, edits)| Rewrite { index, line, begin: line, wanted: &wanted[index], edits })
        .collect();
    let mut result = source.clone();
    rewrite(&mut result, &rewrites, documents.len(), &mut list);
    list.sort_by_key(|remark: &Finding| remark.line);
    Ok(Translated { text: result.text, remarks: list, pods: 0, selecting: Default::default() })
}

/// The SidecarSets of a document, in the order in which `sidecarset` reads them.
fn sets_of(root: &Node) -> Vec<&Node> {
    let listed = root.get("items").map(Node::items).unwrap_or_default();
    std::iter::once(root).chain(listed).filter(|node| is_set(node)).collect()
}

fn sets_of_mut(root: &mut Node) -> Vec<&mut Node> {
    if is_set(root) {
        return vec![root];
    }
    match root.get_mut("items").map(|items| &mut items.value) {
        Some(Value::Sequence(_, items)) => items.iter_mut().filter(|node| is_set(node)).collect(),
        _ => Vec::new(),
    }
}

fn is_set(node: &Node) -> bool {
    node.text_of("kind") == Some("SidecarSet")
}

/// The entry of `patchPodMetadata`; `None` if it would say nothing new.
fn patch(set: &SidecarSet, remarks: &mut Remarks<'_>) -> Option<Node> {
    for own in set.init_containers.iter().filter(|own| own.node.text_of("restartPolicy") == Some("Always")) {
        let what = "a native sidecar: its kubelet keeps its order, and no role is written";
        remarks.say(Severity::Warning, &own.node, format!("initContainers[{}]", own.name), what);
    }
    let mut annotations = Vec::new();
    for (place, own) in set.containers.iter().enumerate() {
        annotations.extend(keys_of(own, place, remarks));
    }
    // S8: beside roles alone its inits would be mains. They make no plan by themselves.
    if !annotations.is_empty() {
        let ends =
            set.init_containers.iter().filter(|own| own.node.text_of("restartPolicy") != Some("Always"));
        let fits = ends.filter(|own| "role.".len() + own.name.len() <= MAX_KEY_NAME);
        annotations.extend(fits.map(|own| (format!("podshim.io/role.{}", own.name), "none".to_owned())));
    }
    annotations.retain(|(key, _)| {
        let there = set.patches.iter().flat_map(|patch| &patch.annotations).any(|(own, _)| own == key);
        if there {
            let what = format!("{key} is there already, and stays");
            remarks.say_at(Severity::Warning, set.line, format!("spec.{PATCHES}"), what);
        }
        !there
    });
    if annotations.is_empty() {
        return None;
    }
    for (field, what) in [
        (
            format!("spec.{PATCHES}"),
            "Kruise refuses these keys unless its ConfigMap kruise-configuration, in kruise-system, allows them: \
             SidecarSet_PatchPodMetadata_WhiteList: '{\"rules\": [{\"allowedAnnotationKeyExprs\": [\"^podshim[.]io/.+$\"]}]}'",
        ),
        (
            "spec.selector".to_owned(),
            "its pods need runtimeClassName: podshim, which no SidecarSet writes; a job also podshim.io/restart-policy, and a \
             podshim.io/role.NAME: main for each main; other pods a podshim.io/role.NAME: none for each init container of theirs",
        ),
    ] {
        remarks.say_at(Severity::Warning, set.line, field, what);
    }
    let values = annotations.iter().map(|(key, value)| (key.as_str(), Node::string(value))).collect();
    Some(Node::mapping(vec![("patchPolicy", Node::string("Retain")), ("annotations", Node::mapping(values))]))
}

/// The annotations of one container.
fn keys_of(own: &SidecarContainer, place: usize, remarks: &mut Remarks<'_>) -> Vec<(String, String)> {
    let field = |path: &str| format!("containers[{}].{path}", own.name);
    let names = match own.upgrade {
        Upgrade::Cold => vec![own.name.clone()],
        Upgrade::Hot => vec![format!("{}-1", own.name), format!("{}-2", own.name)],
    };
    if let Some(long) = names.iter().find(|name| "ready.".len() + name.len() > MAX_KEY_NAME) {
        let what = format!("{long} is too long for a key of an annotation: no role is written");
        remarks.say(Severity::Error, &own.node, field("name"), what);
        return Vec::new();
    }
    let mut member = Member::new(&own.name, Role::Sidecar, 0);
    match (own.upgrade, own.policy) {
        (Upgrade::Hot, _) => {
            let what = "both of the pair are sidecars, ready when their programs run: Kruise flips them, and the idle one \
                        would not get ready";
            remarks.say(Severity::Warning, &own.node, field("upgradeStrategy"), what);
        }
        (Upgrade::Cold, InjectPolicy::After) => {
            let what = "starts before the mains here: a SidecarSet does not know their names (podshim.io/after on the pod does)";
            remarks.say(Severity::Warning, &own.node, field("podInjectPolicy"), what);
        }
        (Upgrade::Cold, InjectPolicy::Before) => gate(own, &mut member, remarks),
    }
    if let Some((key, _)) = own.node.get("lifecycle").and_then(|lifecycle| lifecycle.entry("preStop")) {
        let what = "stays with the kubelet, which runs it when the stop begins; podshim.io/pre-stop in its place runs when the \
                    mains are gone";
        remarks.say(Severity::Warning, key, field("lifecycle.preStop"), what);
    }
    for probe in ["startupProbe", "livenessProbe"] {
        if let Some((key, _)) = own.node.entry(probe).filter(|_| place > 0) {
            let what = "the kubelet asks while it is held, too: allow for that in failureThreshold";
            remarks.say(Severity::Warning, key, field(probe), what);
        }
    }
    let mut keys = Vec::new();
    for name in names {
        keys.push((format!("podshim.io/role.{name}"), "sidecar".to_owned()));
        if member.gate != Gate::Running {
            keys.push((format!("podshim.io/ready.{name}"), member.gate.to_string()));
        }
    }
    keys
}

/// As for a pod: its startup probe, else its readiness probe.
fn gate(own: &SidecarContainer, member: &mut Member, remarks: &mut Remarks<'_>) {
    let Some((key, node)) = own.node.entry("startupProbe") else {
        return inject::gate_of_readiness(own, member, remarks);
    };
    let translated = probe::gate(&own.node, node);
    for (part, what) in translated.remarks {
        let field = format!("containers[{}].startupProbe.{part}", own.name);
        remarks.say(Severity::Warning, key, field, what);
    }
    member.gate = translated.gate.unwrap_or(Gate::Running);
}

/// Puts the patch first in the list, so that Kruise's own order of patches with one key stays.
fn insert(set: &mut Node, patch: Node) {
    let Some(spec) = set.get_mut("spec") else { return };
    let own = spec.get(PATCHES).map(Node::items).unwrap_or_default().to_vec();
    spec.set(PATCHES, Node::sequence(std::iter::once(patch).chain(own).collect()));
}

/// The same in the text; `None` where the text has another layout than a block.
fn insertion(lines: &[&str], set: &Node, patch: &Node) -> Option<edit::Edit> {
    let (key, spec) = set.entry("spec")?;
    let list = Node::sequence(vec![patch.clone()]);
    let items = spec.get(PATCHES).map(Node::items).unwrap_or_default();
    let (at, new) = match items.first() {
        Some(first) => {
            let at = first.start.line - 1;
            (at, yaml::write::lines(&list, edit::indent(lines.get(at)?)))
        }
        None => {
            let column = spec.entries().first()?.0.start.column;
            (key.start.line, yaml::write::lines(&Node::mapping(vec![(PATCHES, list)]), column))
        }
    };
    Some(edit::Edit { from: at, to: at, lines: new })
}
