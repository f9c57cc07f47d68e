//! What is wrong with a SidecarSet.

use crate::yaml::Node;

/// Why the SidecarSets of a file cannot be used.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{problem}")]
pub struct SidecarSetError {
    /// Counted from 1.
    pub line: usize,
    /// What is wrong there.
    pub problem: String,
}

impl SidecarSetError {
    pub(super) fn at(node: &Node, problem: impl Into<String>) -> Self {
        Self { line: node.start.line, problem: problem.into() }
    }

    /// The error for an unknown word.
    pub(super) fn word(node: &Node, field: &str, found: &str, words: &[&str]) -> Self {
        Self::at(node, format!("{field}: {found:?} is none of {}", words.join(", ")))
    }
}
