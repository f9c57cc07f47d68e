//! One pod of a manifest: its annotations, by the parser that the shim has, with the lines they stand on.

use pod_spec::{InvalidPlan, Node as NodeFile, PREFIX, Warning};

use super::fit;
use crate::finding::{Finding, Severity};
use crate::manifest::{self, Template};
use crate::yaml::{Node, Value};

/// Kubernetes' own bound on what follows the slash of an annotation's key.
const MAX_KEY_NAME: usize = 63;

/// Everything that is wrong with a pod.
pub fn check(file: &str, template: &Template<'_>, node: &NodeFile, findings: &mut Vec<Finding>) {
    for (key, _) in template.outer_annotations().into_iter().flat_map(ours) {
        let message = format!("stands on the {}, and never reaches its pods", template.kind);
        let finding = Finding::new(Severity::Warning, file, key.start.line, message);
        let fix = "move it to the metadata.annotations of the pod template";
        findings.push(finding.key(key.text().unwrap_or_default()).fix(fix));
    }
    let Some(annotations) = template.annotations() else { return };
    for (key, value) in ours(annotations) {
        check_entry(file, key, value, findings);
    }
    match node.parse_pod(manifest::pairs(annotations)) {
        Err(invalid) => findings.extend(findings_of_parser(
            file,
            &invalid,
            |key| annotation_line(annotations, key),
            |key| annotations.text_of(key),
        )),
        Ok(parsed) => {
            for warning in &parsed.warnings {
                findings.push(finding_of_warning(file, annotations, warning));
            }
            if let Some(plan) = parsed.plan {
                fit::check(file, template, annotations, &plan, findings);
            }
        }
    }
}

/// The annotations of podshim.
fn ours(annotations: &Node) -> impl Iterator<Item = &(Node, Node)> {
    annotations.entries().iter().filter(|(key, _)| key.text().is_some_and(|key| key.starts_with(PREFIX)))
}

/// What Kubernetes itself refuses, long before a shim sees it.
fn check_entry(file: &str, key: &Node, value: &Node, findings: &mut Vec<Finding>) {
    let name = key.text().unwrap_or_default();
    let error = |node: &Node, message: String| {
        Finding::new(Severity::Error, file, node.start.line, message).key(name)
    };
    match (&value.value, value.text()) {
        (Value::Scalar(_), Some(text)) if !value.is_string() => findings.push(
            error(value, "is no string, and Kubernetes takes no other annotations".to_owned())
                .value(text)
                .fix(format!("write it in quotes: \"{text}\"")),
        ),
        (Value::Scalar(_), _) => {}
        _ => findings.push(error(value, "is a mapping or a list; annotations are strings".to_owned())),
    }
    let own = name.strip_prefix(PREFIX).unwrap_or(name);
    if own.len() > MAX_KEY_NAME {
        let message = format!("{:?} has {} letters, Kubernetes allows {MAX_KEY_NAME}", own, own.len());
        let fix =
            "give the container an alias in the plan: name@alias=role, and write the key with the alias";
        findings.push(error(key, message).fix(fix));
    }
}

/// The parser's errors, with lines and values.
pub fn findings_of_parser<'a>(
    file: &str,
    invalid: &InvalidPlan,
    line_of: impl Fn(&str) -> usize,
    value_of: impl Fn(&str) -> Option<&'a str>,
) -> Vec<Finding> {
    let finding = |error: &pod_spec::PlanError| {
        let mut finding =
            Finding::new(Severity::Error, file, line_of(&error.key), error.to_string()).key(&error.key);
        if let Some(value) = value_of(&error.key) {
            finding = finding.value(value);
        }
        match error.problem.nearest() {
            Some(word) => finding.nearest(word).fix(format!("write {word:?}")),
            None => finding,
        }
    };
    invalid.errors().iter().map(finding).collect()
}

fn finding_of_warning(file: &str, annotations: &Node, warning: &Warning) -> Finding {
    let message = warning.to_string();
    let key = message.split(": ").next().unwrap_or_default().to_owned();
    let finding =
        Finding::new(Severity::Warning, file, annotation_line(annotations, &key), message).key(&key);
    match annotations.text_of(&key) {
        Some(value) => finding.value(value),
        None => finding,
    }
}

/// Where an annotation stands; the annotations' first line for one that is not there.
pub fn annotation_line(annotations: &Node, key: &str) -> usize {
    annotations.entry(key).map_or(annotations.start.line, |(key, _)| key.start.line)
}
