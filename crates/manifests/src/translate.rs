//! Translates manifests with native sidecars (KEP-753), or with the sidecars that SidecarSets add, for a kubelet that
//! does not know sidecars: podshim keeps the same order.
//!
//! Pure: text in, text and remarks out. The tree of a document decides. The text is edited apart from the tree, so that
//! comments and the order of keys survive; then it is read again and compared with the tree. Where they differ, the
//! tree is written out in place of the text. Owns these steps; `native` owns what a sidecar becomes.

mod change;
mod edit;
mod in_place;
mod inject;
mod native;
mod probe;
mod restart;
mod rewrite;
mod text;
mod tree;

use std::collections::BTreeSet;

pub use change::Translated;
use change::{Change, Injection, Remarks};
pub use in_place::in_place;
use rewrite::{Rewrite, rewrite};

use crate::check::{CheckContext, check_manifests};
use crate::finding::{Finding, Severity};
use crate::manifest::{self, List, Template};
use crate::sidecarset::SidecarSet;
use crate::source::Source;
use crate::yaml::{self, Document, YamlError};

/// What to translate for, and what to add.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// The name of podshim's RuntimeClass.
    pub runtime_class: &'a str,
    /// The SidecarSets. Each is added to the pods that it selects.
    pub sidecar_sets: &'a [SidecarSet],
}

/// Translates all pods of a file.
///
/// # Errors
/// The file is not YAML.
pub fn translate(source: &Source, target: Target<'_>) -> Result<Translated, YamlError> {
    let documents = yaml::documents(&source.text)?;
    let namespaces = inject::namespaces(&documents);
    let mut remarks = Vec::new();
    let mut selecting = BTreeSet::new();
    let mut all_changes = Vec::new();
    for (index, document) in documents.iter().enumerate() {
        let mut injections = Vec::new();
        remarks.extend(left_alone(source, document));
        for template in manifest::templates(document) {
            let own = &mut Remarks { file: &source.name, list: &mut remarks };
            let chosen: Vec<&SidecarSet> = target
                .sidecar_sets
                .iter()
                .enumerate()
                .filter(|(_, set)| inject::selects(set, &template, &namespaces, own))
                .map(|(number, set)| {
                    selecting.insert(number);
                    set
                })
                .collect();
            let is_free = !chosen.is_empty() && native::may_change(&template, target.runtime_class, own);
            injections.push(if is_free { inject::injection(&template, &chosen, own) } else { None });
        }
        if let Some(one) = DocumentChanges::of(index, document, injections, source, target, &mut remarks) {
            all_changes.push(one);
        }
    }
    let pods = all_changes.iter().flat_map(|one| one.changes.iter().flatten()).count();
    let translated = carry_out(source, &documents, &all_changes, &mut remarks)?;
    if !all_changes.is_empty() {
        let mut found = Vec::new();
        check_manifests(&translated, &CheckContext::default(), &mut found);
        for error in found.into_iter().filter(|finding| finding.severity == Severity::Error) {
            // The error's line counts in the output, not in the author's file.
            let message = format!("the translation does not pass podshim check: {}", error.message);
            remarks.push(Finding::new(Severity::Error, &source.name, 1, message));
        }
    }
    // Remarks on the translated file come first. Each is kept once, however many pods get the same container.
    remarks.sort_by_key(|remark| (remark.file != source.name, remark.file.clone(), remark.line));
    let mut seen = Vec::new();
    remarks.retain(|remark| {
        let is_new = !seen.contains(remark);
        seen.push(remark.clone());
        is_new
    });
    Ok(Translated { text: translated.text, remarks, pods, selecting })
}

/// Says which objects with native sidecars are not translated: of an unknown kind that looks like a pod itself.
fn left_alone(source: &Source, document: &Document) -> Vec<Finding> {
    let is_unsure = |template: &Template<'_>| {
        manifest::path_of(template.kind).is_none() && std::ptr::eq(template.object, template.pod)
    };
    let native =
        |template: &Template<'_>| template.containers().iter().any(|one| one.list == List::NativeSidecar);
    let all = manifest::all_templates(document).into_iter().filter(|one| is_unsure(one) && native(one));
    all.map(|template| {
        let message = format!(
            "{}: left as it is: an object of this kind may take podshim's annotations and runtimeClassName elsewhere",
            template.title()
        );
        Finding::new(Severity::Warning, &source.name, template.object.start.line, message)
    })
    .collect()
}

/// The changes to one document.
struct DocumentChanges {
    index: usize,
    line: usize,
    injections: Vec<Option<Injection>>,
    /// The document with the injections.
    injected: Document,
    changes: Vec<Option<Change>>,
    /// The document with the injections and the changes.
    wanted: Document,
}

impl DocumentChanges {
    /// `None` if there is nothing to do, or if the changes are impossible; in the second case a remark says why.
    fn of(
        index: usize,
        document: &Document,
        mut injections: Vec<Option<Injection>>,
        source: &Source,
        target: Target<'_>,
        remarks: &mut Vec<Finding>,
    ) -> Option<Self> {
        let mut injected = document.clone();
        tree::inject(&mut injected.root, &injections);
        let changes: Vec<_> = manifest::templates(&injected)
            .iter()
            .zip(&injections)
            .map(|(template, injection)| {
                native::change(&source.name, template, target.runtime_class, injection.as_ref(), remarks)
            })
            .collect();
        // A pod that cannot get a plan gets no injection either.
        let refused = |pair: &(&mut Option<Injection>, &Option<Change>)| {
            pair.1.is_none() && pair.0.as_ref().is_some_and(|injection| !injection.sidecars.is_empty())
        };
        injections.iter_mut().zip(&changes).filter(refused).for_each(|(injection, _)| *injection = None);
        if changes.iter().all(Option::is_none) && injections.iter().all(Option::is_none) {
            return None;
        }
        let mut injected = document.clone();
        tree::inject(&mut injected.root, &injections);
        let mut wanted = injected.clone();
        tree::apply(&mut wanted.root, &changes);
        let line = document.root.start.line;
        if !is_done(&wanted, &injections, &changes) {
            let what = "left as it is: a part that would have to change is merged in by <<";
            remarks.push(Finding::new(Severity::Error, &source.name, line, what));
            return None;
        }
        Some(Self { index, line, injections, injected, changes, wanted })
    }
}

/// Edits the injections into the text, reads the result again, and edits the changes into that: their places are places
/// in the text with the injections.
fn carry_out(
    source: &Source,
    documents: &[Document],
    all_changes: &[DocumentChanges],
    remarks: &mut Vec<Finding>,
) -> Result<Source, YamlError> {
    let mut source = source.clone();
    let injecting = all_changes.iter().filter(|one| one.injections.iter().any(Option::is_some));
    let rewrites: Vec<Rewrite<'_>> = injecting
        .map(|one| Rewrite {
            index: one.index,
            line: one.line,
            begin: one.line,
            wanted: &one.injected,
            edits: text::injected(&source.text, &documents[one.index], &one.injections),
        })
        .collect();
    rewrite(&mut source, &rewrites, documents.len(), remarks);
    let documents = yaml::documents(&source.text)?;
    let changing = all_changes.iter().filter(|one| one.changes.iter().any(Option::is_some));
    let rewrites: Vec<Rewrite<'_>> = changing
        .filter_map(|one| Some((one, documents.get(one.index)?)))
        .map(|(one, document)| Rewrite {
            index: one.index,
            line: one.line,
            begin: document.root.start.line,
            wanted: &one.wanted,
            edits: text::edits(&source.text, document, &one.changes),
        })
        .collect();
    rewrite(&mut source, &rewrites, documents.len(), remarks);
    Ok(source)
}

/// Whether every change has arrived; a tree cannot be changed where it shares a part with others.
fn is_done(document: &Document, injections: &[Option<Injection>], changes: &[Option<Change>]) -> bool {
    let templates = manifest::templates(document);
    let has_all = |template: &Template<'_>, injection: &Injection| {
        let containers = template.containers();
        injection.files.keys().all(|name| containers.iter().any(|container| container.name == name))
    };
    templates.len() == changes.len()
        && templates.iter().zip(injections).all(|(template, injection)| {
            injection.as_ref().is_none_or(|injection| has_all(template, injection))
        })
        && templates.iter().zip(changes).all(|(template, change)| {
            let plan = template.annotations().and_then(|annotations| annotations.get("podshim.io/plan"));
            let left = |container: &manifest::Container<'_>| container.list == List::NativeSidecar;
            change.is_none() || (plan.is_some() && !template.containers().iter().any(left))
        })
}
