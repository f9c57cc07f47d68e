//! Manifests with native sidecars (KEP-753) as manifests for a kubelet that does not know them: the same order, kept by
//! podshim.
//!
//! Pure: text in, text and remarks out. The tree of a document is what counts: the text is edited beside it, so that
//! comments and the order of keys survive, and is read again and compared. Where that fails the tree is written out
//! anew. Owns the way from one to the other; what a sidecar becomes is `native`'s.

mod edit;
mod native;
mod probe;
mod text;
mod tree;

use pod_spec::Node as NodeFile;

use crate::check;
use crate::finding::{Finding, Severity};
use crate::manifest;
use crate::source::Source;
use crate::yaml::{self, Document, YamlError};

/// A translated file.
#[derive(Clone, Debug)]
pub struct Translated {
    /// All of it; what needs no translation is as it was.
    pub text: String,
    /// What could not be carried over, or is not quite the same. An error: that pod was left as it was.
    pub remarks: Vec<Finding>,
    /// How many pods were translated.
    pub pods: usize,
}

/// Translates all pods of a file.
///
/// # Errors
/// The file is no YAML.
pub fn translate(source: &Source, runtime_class: &str) -> Result<Translated, YamlError> {
    let documents = yaml::documents(&source.text)?;
    let mut remarks = Vec::new();
    let mut pods = 0;
    let mut rewrites = Vec::new();
    for (index, document) in documents.iter().enumerate() {
        let changes: Vec<_> = manifest::templates(document)
            .iter()
            .map(|template| native::change(&source.name, template, runtime_class, &mut remarks))
            .collect();
        if changes.iter().any(Option::is_some) {
            let mut wanted = document.clone();
            tree::apply(&mut wanted.root, &changes);
            if !is_done(&wanted, &changes) {
                let line = document.root.start.line;
                let what = "left as it is: a part that would have to change is merged in by <<";
                remarks.push(Finding::new(Severity::Error, &source.name, line, what));
                continue;
            }
            pods += changes.iter().flatten().count();
            let edits = text::edits(&source.text, document, &changes);
            rewrites.push(Rewrite { index, document, wanted, edits });
        }
    }
    if rewrites.is_empty() {
        return Ok(Translated { text: source.text.clone(), remarks, pods });
    }
    let text = rewrite(source, &rewrites, documents.len(), &mut remarks);
    let translated = Source { name: source.name.clone(), text };
    let (_, found) = check::check(&translated, &NodeFile::default());
    for error in found.into_iter().filter(|finding| finding.severity == Severity::Error) {
        // The line is one of the output.
        let message = format!("the translation does not pass podshim check: {}", error.message);
        remarks.push(Finding::new(Severity::Error, &source.name, 1, message));
    }
    remarks.sort_by_key(|remark| remark.line);
    Ok(Translated { text: translated.text, remarks, pods })
}

/// Whether every change has arrived; a tree cannot be changed where it shares a part with others.
fn is_done(document: &Document, changes: &[Option<native::Change>]) -> bool {
    let templates = manifest::templates(document);
    templates.len() == changes.len()
        && templates.iter().zip(changes).all(|(template, change)| {
            let plan = template.annotations().and_then(|annotations| annotations.get("podshim.io/plan"));
            let left = |container: &manifest::Container<'_>| container.list == manifest::List::NativeSidecar;
            change.is_none() || (plan.is_some() && !template.containers().iter().any(left))
        })
}

/// What becomes of one document.
struct Rewrite<'a> {
    index: usize,
    document: &'a Document,
    wanted: Document,
    /// In the text; or why that cannot be.
    edits: Result<Vec<edit::Edit>, &'static str>,
}

/// Edits the text where that gives what is wanted, and writes the other documents anew.
fn rewrite(source: &Source, rewrites: &[Rewrite<'_>], count: usize, remarks: &mut Vec<Finding>) -> String {
    let lines: Vec<&str> = source.text.lines().collect();
    let mut edits = Vec::new();
    for rewrite in rewrites {
        let in_text = rewrite.edits.as_ref().map_err(|reason| *reason).and_then(|own| {
            let whole = edit::apply(&lines, own);
            let read = yaml::documents(&whole).unwrap_or_default();
            let found = read.get(rewrite.index).filter(|_| read.len() == count);
            let same = found.is_some_and(|found| tree::same(&found.root, &rewrite.wanted.root));
            if same { Ok(own.clone()) } else { Err("its layout is unusual") }
        });
        match in_text {
            Ok(own) => edits.extend(own),
            Err(reason) => {
                let line = rewrite.document.root.start.line;
                let message = format!("comments of this document are lost, it is written anew: {reason}");
                remarks.push(Finding::new(Severity::Warning, &source.name, line, message));
                edits.push(edit::Edit {
                    from: line - 1,
                    to: edit::end_of_document(&lines, line - 1),
                    lines: yaml::write::lines(&rewrite.wanted.root, 0),
                });
            }
        }
    }
    edit::apply(&lines, &edits)
}
