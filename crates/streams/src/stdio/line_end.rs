//! Where one line of a stream ends and the next one begins (R6): the program of a restart in place, a hook and podshim's own lines
//! each begin on a line of their own, also if what came before had no line feed at its end.
//!
//! Owns what is known of the last byte of a stream. Moves nothing by itself (`carry` says with which byte it has ended).

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};

use super::endpoint::open_to_read_again;

/// Whether the last that a reader got of a stream is the beginning of a line.
#[derive(Debug, Default)]
pub(crate) struct OpenLine(AtomicBool);

impl OpenLine {
    /// This was written.
    pub fn wrote(&self, data: &[u8]) {
        if let Some(last) = data.last() {
            self.0.store(*last != b'\n', Ordering::Relaxed);
        }
    }

    pub fn is_open(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A line feed at the end of a regular file that ends in the middle of a line. The process writes to such a file itself, so the file
/// alone shows where it ends.
pub(super) fn end_line_of_file(mut file: &File) {
    let ends_with_line = || {
        let length = file.metadata().ok().filter(std::fs::Metadata::is_file)?.len();
        let mut last = [0];
        open_to_read_again(file).ok()?.read_exact_at(&mut last, length.checked_sub(1)?).ok()?;
        Some(last == *b"\n")
    };
    if ends_with_line() == Some(false) {
        // It is opened to append. If the disk is full, the next line is lost too.
        let _ = file.write_all(b"\n");
    }
}
