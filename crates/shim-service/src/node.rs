//! The node's configuration file, read again for each pod. Owns the reading; what it may say is `pod-spec`'s.

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
pub fn read(path: &Path) -> Result<Node, String> {
    let wrong = |problem: &dyn std::fmt::Display| format!("{}: {problem}", path.display());
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Node::default()),
        Err(error) => return Err(wrong(&error)),
    };
    let mut text = String::new();
    let length = file.take(LIMIT + 1).read_to_string(&mut text).map_err(|error| wrong(&error))?;
    // What is forbidden at its end must not be allowed by its length.
    if length as u64 > LIMIT {
        return Err(wrong(&format_args!("larger than {LIMIT} bytes")));
    }
    Node::parse(&text).map_err(|error| wrong(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_too_large_is_refused_whole() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.toml");
        assert!(read(&path).is_ok(), "none is no mistake");
        let line = "#".repeat(LIMIT as usize - 1) + "\n";
        std::fs::write(&path, &line).unwrap();
        assert!(read(&path).is_ok());
        std::fs::write(&path, line + "forbid = [\"fatal\"]\n").unwrap();
        let error = read(&path).unwrap_err();
        assert!(error.ends_with("config.toml: larger than 65536 bytes"), "{error}");
    }
}
