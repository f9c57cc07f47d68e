//! Checks manifests, and annotations alone.
//!
//! Owns the checks beyond the annotations themselves: whether they fit the pod they stand on. `pod-spec` alone owns what an
//! annotation may say.

mod contradictions;
mod cost;
mod elsewhere;
mod gate_of_another;
mod in_place;
mod kruise;
mod kubelets_own;
mod other_place;
mod own_restart;
mod plan_against_manifest;
pub mod pod;
mod pod_restart;
mod proposal;
mod short_steps;
mod stop_signal;
mod waits;

pub use contradictions::contradictions;
pub use pod::CheckContext;

use crate::annotations;
use crate::finding::{Finding, Severity};
use crate::manifest;
use crate::source::Source;
use crate::yaml::{self, Document};

/// Adds all findings on a file of manifests, and returns how many pods it has.
pub fn check_manifests(source: &Source, context: &CheckContext, findings: &mut Vec<Finding>) -> usize {
    if let Some(lines) = annotations::lines(&source.text) {
        pod::check_lines(&source.name, &lines, &context.node, findings);
        return 1;
    }
    let documents = match yaml::documents(&source.text) {
        Ok(documents) => documents,
        Err(error) => {
            let message = format!("no YAML: {}", error.problem);
            findings.push(Finding::new(Severity::Error, &source.name, error.line, message));
            return 0;
        }
    };
    let is_empty = |document: &Document| document.root.is_null();
    if documents.iter().all(is_empty) {
        let message = "nothing is in it: no manifest, and no annotations";
        findings.push(Finding::new(Severity::Error, &source.name, 1, message));
    }
    let mut pods = 0;
    for document in &documents {
        if let Some(annotations) = annotations::alone(&document.root) {
            pods += 1;
            pod::check_alone(&source.name, annotations, &context.node, findings);
            continue;
        }
        let templates = manifest::all_templates(document);
        for template in &templates {
            pods += 1;
            pod::check(&source.name, template, context, findings);
        }
        elsewhere::check(source, document, &templates, &context.node, findings);
    }
    pods
}
