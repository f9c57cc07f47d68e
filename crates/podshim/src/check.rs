//! Checks the files around a pod: manifests, the node's file, containerd's configuration.
//!
//! Owns how to recognize each kind of file, and the checks beyond the annotations themselves: whether they fit the pod
//! they stand on. `pod-spec` alone owns what an annotation may say.

pub mod containerd_config;
mod cost;
mod elsewhere;
pub(crate) mod glob;
mod in_place;
mod kruise;
mod kubelets_own;
pub mod node_file;
mod own_restart;
mod plan_against_manifest;
pub mod pod;
mod pod_restart;
mod proposal;
mod stop_signal;

pub use pod::CheckContext;

use crate::annotations;
use crate::finding::{Finding, Severity};
use crate::install::containerd::FIRST_WITH_SHIM;
use crate::manifest;
use crate::source::Source;
use crate::yaml::{self, Document};

/// What a file turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// Manifests, with this number of pods.
    Pods(usize),
    /// The node's file.
    NodeFile,
    /// containerd's configuration.
    ContainerdConfig,
}

/// All findings on one file.
pub fn check(source: &Source, context: &CheckContext) -> (FileKind, Vec<Finding>) {
    let mut findings = Vec::new();
    let kind = match syntax_of(source) {
        Syntax::Toml if is_containerd_config(&source.text) => {
            let too_old = context.containerd.filter(|release| *release < FIRST_WITH_SHIM);
            findings = containerd_config::check(source, &context.node, too_old);
            FileKind::ContainerdConfig
        }
        Syntax::Toml => {
            findings = node_file::check(source);
            FileKind::NodeFile
        }
        Syntax::Yaml => FileKind::Pods(check_manifests(source, context, &mut findings)),
    };
    findings.sort_by_key(|finding| finding.line);
    (kind, findings)
}

fn check_manifests(source: &Source, context: &CheckContext, findings: &mut Vec<Finding>) -> usize {
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

enum Syntax {
    Toml,
    Yaml,
}

/// The kind by the file's name. For standard input, by its first line that is not a comment: YAML has no table header
/// there and no `=` after a bare word.
fn syntax_of(source: &Source) -> Syntax {
    let name = source.name.to_ascii_lowercase();
    if name.ends_with(".toml") {
        return Syntax::Toml;
    }
    if [".yaml", ".yml", ".json"].iter().any(|end| name.ends_with(end)) {
        return Syntax::Yaml;
    }
    let bare =
        |word: &str| !word.is_empty() && word.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c));
    let first = source.text.lines().map(str::trim).find(|line| !line.is_empty() && !line.starts_with('#'));
    match first {
        Some(line) if line.split_once('=').is_some_and(|(key, _)| bare(key.trim())) => Syntax::Toml,
        Some(line) if line.starts_with('[') && line.ends_with(']') => Syntax::Toml,
        _ => Syntax::Yaml,
    }
}

/// Keys and tables that only containerd's configuration has. The node's file has no tables at all; any
/// other table is reported as a mistake in the node's file.
const CONTAINERD_KEYS: [&str; 9] = [
    "version",
    "imports",
    "root",
    "state",
    "temp",
    "disabled_plugins",
    "required_plugins",
    "oom_score",
    "plugins",
];
const CONTAINERD_TABLES: [&str; 7] =
    ["[plugins", "[grpc", "[ttrpc", "[debug", "[metrics", "[cgroup", "[stream_processors"];

fn is_containerd_config(text: &str) -> bool {
    text.lines().map(str::trim).any(|line| {
        let key = line.split_once('=').map(|(key, _)| key.trim());
        let is_table = CONTAINERD_TABLES.iter().any(|table| line.starts_with(table));
        is_table || key.is_some_and(|key| CONTAINERD_KEYS.contains(&key))
    })
}
