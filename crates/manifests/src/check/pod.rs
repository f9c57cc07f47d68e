//! Checks the annotations of one pod of a manifest, with the parser that the shim uses, and finds their lines.

use std::borrow::Cow;

use pod_spec::{InvalidPlan, Node as NodeFile, PREFIX, Plan, PlanError, Warning, kruise};

use super::{cost, plan_against_manifest, proposal};
use crate::annotations::{Line, annotation_line, is_ours};
use crate::finding::{Finding, Severity};
use crate::manifest::{self, Template};
use crate::yaml::{Node, Value};

/// Kubernetes' limit on the part of an annotation's key after the slash.
const MAX_KEY_NAME: usize = 63;

/// What the check must know and the checked files do not say.
#[derive(Debug, Default)]
pub struct CheckContext {
    /// The node's file.
    pub node: NodeFile,
    /// The names of containers that something adds to each pod later.
    pub injected: Vec<String>,
}

/// Adds all findings on a pod.
pub fn check(file: &str, template: &Template<'_>, context: &CheckContext, findings: &mut Vec<Finding>) {
    let own = template.annotations();
    for (key, _) in template.outer_annotations().into_iter().flat_map(ours) {
        let name = key.text().unwrap_or_default();
        let message = format!("stands on the {}, and never reaches its pods", template.kind);
        let finding = Finding::new(Severity::Warning, file, key.start.line, message);
        let is_there_too = own.is_some_and(|own| own.entry(name).is_some());
        let fix = if is_there_too {
            "remove it: the pod template has its own"
        } else {
            "move it to the metadata.annotations of the pod template"
        };
        findings.push(finding.key(name).fix(fix));
    }
    let Some(annotations) = own else { return };
    match check_annotations(file, annotations, &context.node, findings) {
        Ok(Some(plan)) => {
            plan_against_manifest::check(file, template, annotations, &plan, &context.injected, findings)
        }
        Ok(None) => {}
        Err(invalid) => {
            for (mut finding, error) in parser_findings(file, annotations, &invalid).zip(invalid.errors()) {
                if finding.fix.is_none() {
                    finding.fix = proposal::of_parser(template, annotations, error);
                }
                findings.push(finding);
            }
        }
    }
}

/// Adds all findings on annotations that stand without a pod.
pub fn check_alone(file: &str, annotations: &Node, node: &NodeFile, findings: &mut Vec<Finding>) {
    if let Err(invalid) = check_annotations(file, annotations, node, findings) {
        findings.extend(parser_findings(file, annotations, &invalid));
    }
}

/// Adds all findings on annotations that are lines of `key=value`.
pub fn check_lines(file: &str, lines: &[Line<'_>], node: &NodeFile, findings: &mut Vec<Finding>) {
    let entry = |key: &str| lines.iter().find(|(_, own, _)| *own == key);
    let line_of = |key: &str| entry(key).map_or(1, |(line, ..)| *line);
    match node.parse_pod(lines.iter().map(|(_, key, value)| (*key, *value))) {
        Err(invalid) => {
            let value_of = |key: &str| entry(key).map(|(_, _, value)| *value);
            findings.extend(findings_of_parser(file, &invalid, line_of, value_of));
        }
        Ok(parsed) => {
            let warnings = parsed.warnings.iter().map(|warning| {
                let key = key_of(warning);
                let finding = Finding::new(Severity::Warning, file, line_of(&key), warning.to_string());
                entry(&key).map_or(finding.clone(), |(_, _, value)| finding.value(value)).key(&key)
            });
            findings.extend(warnings);
            let place = |key: &str| entry(key).map_or((1, None), |(line, _, value)| (*line, Some(*value)));
            findings.extend(parsed.plan.iter().flat_map(|plan| cost::of_plan(file, plan, place)));
        }
    }
}

/// Adds the findings that do not depend on the pod around the annotations. Returns their plan, or the parser's errors.
fn check_annotations(
    file: &str,
    annotations: &Node,
    node: &NodeFile,
    findings: &mut Vec<Finding>,
) -> Result<Option<Plan>, InvalidPlan> {
    let parsed = node.parse_pod(manifest::pairs(annotations));
    let errors = parsed.as_ref().err().map(InvalidPlan::errors).unwrap_or_default();
    for (key, value) in ours(annotations) {
        let name = key.text().unwrap_or_default();
        check_entry(file, key, value, errors.iter().find(|error| error.key == name), findings);
    }
    let parsed = parsed?;
    for warning in &parsed.warnings {
        findings.push(finding_of_warning(file, annotations, warning));
    }
    if let Some(plan) = &parsed.plan {
        let place = |key: &str| (annotation_line(annotations, key), annotations.text_of(key));
        findings.extend(cost::of_plan(file, plan, place));
    }
    Ok(parsed.plan)
}

fn parser_findings(file: &str, annotations: &Node, invalid: &InvalidPlan) -> impl Iterator<Item = Finding> {
    let line_of = |key: &str| annotation_line(annotations, key);
    let found = findings_of_parser(file, invalid, line_of, |key| annotations.text_of(key));
    found.into_iter().zip(invalid.errors()).map(|(finding, error)| match proposal::right_key(error) {
        // YAML does not allow the same key twice.
        Some(right) if annotations.entry(&right).is_some() => {
            Finding { fix: Some(format!("remove it: {right} is there already")), ..finding }
        }
        _ => finding,
    })
}

/// The annotations of podshim.
fn ours(annotations: &Node) -> impl Iterator<Item = &(Node, Node)> {
    annotations.entries().iter().filter(|(key, _)| key.text().is_some_and(is_ours))
}

/// Adds the findings on what Kubernetes itself refuses, before a shim sees it. Never proposes a value that the shim
/// would refuse: if the parser has an error too, only the parser's word is proposed.
fn check_entry(
    file: &str,
    key: &Node,
    value: &Node,
    parser: Option<&PlanError>,
    findings: &mut Vec<Finding>,
) {
    let name = key.text().unwrap_or_default();
    let error = |node: &Node, message: String| {
        Finding::new(Severity::Error, file, node.start.line, message).key(name)
    };
    match (&value.value, value.text()) {
        (Value::Scalar(_), Some(text)) if !value.is_string() => {
            let finding = error(value, "is no string, and Kubernetes takes no other annotations".to_owned());
            let right = match parser {
                None => Some(Cow::Borrowed(text)),
                Some(error) => error.problem.nearest(),
            };
            let finding = finding.value(text);
            findings.push(match right {
                Some(right) => finding.fix(format!("write it in quotes: {right:?}")),
                None => finding,
            });
        }
        (Value::Scalar(_), _) => {}
        _ => findings.push(error(value, "is a mapping or a list; annotations are strings".to_owned())),
    }
    let own = name.strip_prefix(PREFIX).unwrap_or(name);
    if own.len() > MAX_KEY_NAME {
        let message = format!("{:?} has {} letters, Kubernetes allows {MAX_KEY_NAME}", own, own.len());
        let fix =
            "give the container an alias in the plan: name@alias=role, and write the key with the alias";
        let finding = error(key, message);
        findings.push(if parser.is_none() { finding.fix(fix) } else { finding });
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
            Some(word) => finding.nearest(&word).fix(format!("write {word:?}")),
            None => finding,
        }
    };
    invalid.errors().iter().map(finding).collect()
}

fn finding_of_warning(file: &str, annotations: &Node, warning: &Warning) -> Finding {
    let key = key_of(warning);
    let line = annotation_line(annotations, &key);
    let finding = Finding::new(Severity::Warning, file, line, warning.to_string()).key(&key);
    match annotations.text_of(&key) {
        Some(value) => finding.value(value),
        None => finding,
    }
}

/// The key that a warning is about: its text begins with it, if it is one of podshim's.
fn key_of(warning: &Warning) -> String {
    if let Warning::UnreadMarks { .. } = warning {
        return kruise::SIDECARSETS.to_owned();
    }
    warning.to_string().split(": ").next().unwrap_or_default().to_owned()
}
