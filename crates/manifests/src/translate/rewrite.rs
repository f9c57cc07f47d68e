//! Writes changed trees into the text of a file: by edits where those give the wanted tree, else the tree as it is. Owns which
//! of the two.

use super::{edit, tree};
use crate::finding::{Finding, Severity};
use crate::source::Source;
use crate::yaml::{self, Document};

/// How one document is rewritten.
pub struct Rewrite<'a> {
    /// Its number in the file, counted from 0.
    pub index: usize,
    /// The line where it begins in the author's file.
    pub line: usize,
    /// The line where it begins in the text that is edited.
    pub begin: usize,
    /// What it shall be.
    pub wanted: &'a Document,
    /// The edits of the text, or why the text cannot be edited.
    pub edits: Result<Vec<edit::Edit>, &'static str>,
}

/// Edits the text of each document where that gives the wanted tree, and writes the tree out for the others.
pub fn rewrite(source: &mut Source, rewrites: &[Rewrite<'_>], count: usize, remarks: &mut Vec<Finding>) {
    if rewrites.is_empty() {
        return;
    }
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
                let message = format!("comments of this document are lost, as it is rewritten: {reason}");
                remarks.push(Finding::new(Severity::Warning, &source.name, rewrite.line, message));
                edits.push(edit::Edit {
                    from: rewrite.begin - 1,
                    to: edit::end_of_document(&lines, rewrite.begin - 1),
                    lines: yaml::write::lines(&rewrite.wanted.root, 0),
                });
            }
        }
    }
    source.text = edit::apply(&lines, &edits);
}
