//! Reads the node's configuration file, for each pod that has podshim's annotations and for the history.
//!
//! Owns the file's bound. Its keys and values are `pod-spec`'s.

use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;

use pod_spec::Node;

/// The largest file that is read. The configuration is a few lines; a larger file is something else.
const LIMIT: u64 = 64 * 1024;

/// Reads the file; where there is none, all defaults hold.
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
    // Not cut off: a line that forbids something may stand at its end.
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
        assert!(read(&path).is_ok(), "no file is no error");
        let line = "#".repeat(LIMIT as usize - 1) + "\n";
        std::fs::write(&path, &line).unwrap();
        assert!(read(&path).is_ok());
        std::fs::write(&path, line + "forbid = [\"fatal\"]\n").unwrap();
        let error = read(&path).unwrap_err();
        assert!(error.ends_with("config.toml: larger than 65536 bytes"), "{error}");
    }
}
