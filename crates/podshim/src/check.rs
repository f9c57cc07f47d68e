//! Checks the files around a pod: manifests, the node's file, containerd's configuration.
//!
//! Owns how to recognize each kind of file, and the checks of the node's. `manifests` owns those of pods.

use manifests::check::{CheckContext, check_manifests};
use manifests::finding::Finding;
use manifests::source::Source;
use node_setup::node::{FIRST_WITH_SHIM, Release};
use node_setup::{containerd_config, node_file};

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

/// All findings on one file. `containerd` is the node's, if it is known.
pub fn check(
    source: &Source,
    context: &CheckContext,
    containerd: Option<Release>,
) -> (FileKind, Vec<Finding>) {
    let mut findings = Vec::new();
    let kind = match syntax_of(source) {
        Syntax::Toml if is_containerd_config(&source.text) => {
            let too_old = containerd.filter(|release| *release < FIRST_WITH_SHIM);
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
