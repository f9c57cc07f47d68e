//! The repository as its tests read it: which file imports which, what a file says at its head, what it declares.
//!
//! Owns the reading, and the drawing of the crates in docs/design.md. Knows no rule: what the repository promises of itself is in
//! this package's tests, a file for each promise. Changes nothing.

#![forbid(unsafe_code)]

pub mod drawing;
pub mod modules;
pub mod source;

use std::fs;
use std::path::{Path, PathBuf};

/// The repository's folder.
///
/// # Panics
/// It is not there.
#[must_use]
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository")
}

/// Every Rust source below a folder, by its path from there, in order.
///
/// # Panics
/// The folder cannot be read.
#[must_use]
pub fn rust_files(folder: &Path) -> Vec<String> {
    let (mut found, mut unread) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(next) = unread.pop() {
        for entry in fs::read_dir(&next).expect("a folder").map(|entry| entry.expect("an entry").path()) {
            if entry.is_dir() {
                unread.push(entry);
            } else if entry.extension().is_some_and(|extension| extension == "rs") {
                found.push(entry.strip_prefix(folder).expect("a path below").display().to_string());
            }
        }
    }
    found.sort();
    found
}

/// All Rust sources of the crates and of the tests.
///
/// # Panics
/// A folder cannot be read.
#[must_use]
pub fn source_files() -> Vec<PathBuf> {
    let below = |folder: &str| {
        let folder = root().join(folder);
        rust_files(&folder).into_iter().map(move |file| folder.join(file))
    };
    below("crates").chain(below("tests")).collect()
}

/// Their texts.
///
/// # Panics
/// One cannot be read.
#[must_use]
pub fn sources() -> Vec<String> {
    let read = |file: PathBuf| {
        fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()))
    };
    source_files().into_iter().map(read).collect()
}
