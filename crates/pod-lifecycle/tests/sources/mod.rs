//! The sources that a test reads as text.

use std::fs;
use std::path::Path;

/// Every source below a folder, by its path from `root`.
pub fn sources(root: &Path, folder: &Path, found: &mut Vec<String>) {
    for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        if entry.is_dir() {
            sources(root, &entry, found);
        } else if entry.extension().is_some_and(|extension| extension == "rs") {
            found.push(entry.strip_prefix(root).expect("a path below").display().to_string());
        }
    }
}

/// A file's text before its tests.
pub fn without_tests(text: &str) -> &str {
    text.split("#[cfg(test)]").next().unwrap_or_default()
}
