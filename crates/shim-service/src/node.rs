//! The node's configuration file, read anew for each pod. Owns the reading; what it may say is `pod-spec`'s.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use pod_spec::Node;

/// It is a handful of lines; a larger file is something else.
const LIMIT: u64 = 64 * 1024;

/// Reads the file; without one the node says nothing.
///
/// # Errors
/// What is wrong with it: the file, the line, the key.
pub(crate) fn read(path: &Path) -> Result<Node, String> {
    let wrong = |problem: &dyn std::fmt::Display| format!("{}: {problem}", path.display());
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Node::default()),
        Err(error) => return Err(wrong(&error)),
    };
    let mut text = String::new();
    file.take(LIMIT).read_to_string(&mut text).map_err(|error| wrong(&error))?;
    Node::parse(&text).map_err(|error| wrong(&error))
}
