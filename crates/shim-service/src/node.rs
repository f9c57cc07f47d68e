//! Reads the node's configuration file, for each pod that has podshim's annotations and for the history.
//!
//! Owns the file's bound. Its keys and values are `pod-spec`'s.

use std::cell::OnceCell;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

use pod_spec::{Node, NodeError};
use thiserror::Error;

/// The largest file that is read. The configuration is a few lines; a larger file is something else.
const LIMIT: u64 = 64 * 1024;

/// What is wrong with the node's file.
#[derive(Debug, Error)]
pub enum NodeFileError {
    /// The system does not give it.
    #[error("{}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// It has more bytes than are read.
    #[error("{}: larger than {LIMIT} bytes", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// A line of it.
    #[error("{}: {source}", path.display())]
    Invalid {
        /// The file.
        path: PathBuf,
        /// The line and the key.
        source: Box<NodeError>,
    },
}

/// The file for one Create: read at most once, and only if something of it is needed. A pod that needs nothing of it must not depend
/// on it (S1, S12).
#[derive(Debug)]
pub(crate) struct NodeFile<'a> {
    path: &'a Path,
    node: OnceCell<Result<Node, NodeFileError>>,
}

impl<'a> NodeFile<'a> {
    pub(crate) fn at(path: &'a Path) -> Self {
        Self { path, node: OnceCell::new() }
    }

    /// What it says.
    ///
    /// # Errors
    /// [`NodeFileError`].
    pub(crate) fn node(&self) -> Result<&Node, &NodeFileError> {
        self.node.get_or_init(|| read(self.path)).as_ref()
    }
}

/// Reads the file; where there is none, all defaults hold.
///
/// # Errors
/// [`NodeFileError`].
pub fn read(path: &Path) -> Result<Node, NodeFileError> {
    let unreadable = |source| NodeFileError::Unreadable { path: path.to_owned(), source };
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Node::default()),
        Err(error) => return Err(unreadable(error)),
    };
    let mut text = String::new();
    let length = file.take(LIMIT + 1).read_to_string(&mut text).map_err(unreadable)?;
    // Not cut off: a line that forbids something may stand at its end.
    if length as u64 > LIMIT {
        return Err(NodeFileError::TooLarge { path: path.to_owned() });
    }
    Node::parse(&text)
        .map_err(|source| NodeFileError::Invalid { path: path.to_owned(), source: Box::new(source) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_too_large_is_refused_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.toml");
        assert!(read(&path).is_ok(), "no file is no error");
        let line = "#".repeat(LIMIT as usize - 1) + "\n";
        std::fs::write(&path, &line).unwrap();
        assert!(read(&path).is_ok());
        std::fs::write(&path, line + "forbid = [\"fatal\"]\n").unwrap();
        let error = read(&path).unwrap_err().to_string();
        assert!(error.ends_with("config.toml: larger than 65536 bytes"), "{error}");
    }
}
