//! Puts a file in the place of another one. Owns that a reader never sees a part of it. Knows no content.

use std::fs;
use std::io;
use std::path::Path;

/// Puts a file with this content at `path`, whole or not at all; `temporary` is beside it.
///
/// # Errors
/// The system's answer; what was at `path` is there then, and nothing is left beside it.
pub fn replace(path: &Path, temporary: &Path, content: &[u8]) -> io::Result<()> {
    let written = fs::write(temporary, content).and_then(|()| fs::rename(temporary, path));
    if written.is_err() {
        let _ = fs::remove_file(temporary);
    }
    written
}
