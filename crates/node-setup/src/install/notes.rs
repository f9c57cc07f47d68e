//! What an installer notes for the one after it, as it may be killed at any moment: with which configuration it restarts
//! containerd, which one containerd had before, and which one containerd did not take.
//!
//! Owns two files below /run, so a reboot removes both. They hold the texts of containerd's files, and count only as long as
//! an installation would leave the same texts.

use std::io;
use std::path::{Path, PathBuf};

use super::root::Root;

/// The configuration with which containerd was restarted and has not answered yet, below a line with its unit and one with the files
/// as they were before, in JSON.
pub const RESTARTED: &str = "/run/podshim-restarted-configuration";
/// The configuration that containerd did not take. Without it an installer that is started again would restart containerd again
/// and again.
pub const REFUSED: &str = "/run/podshim-refused-configuration";
/// Only root may read them: containerd's configuration may hold passwords of registries.
const MODE: u32 = 0o600;

/// A restart of which the outcome is not known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Restarted {
    /// Its unit; empty where containerd's supervisor restarts it.
    pub unit: String,
    /// The files that installers have changed since containerd answered last.
    pub before: Vec<Before>,
    /// The texts with podshim's runtime.
    pub texts: String,
}

/// A file's path and its text; `None` if there was no such file.
pub type Before = (PathBuf, Option<String>);

/// The restart that was noted, if there is one.
pub fn restarted(root: &Root) -> Option<Restarted> {
    let note = String::from_utf8(root.read(Path::new(RESTARTED)).ok()?).ok()?;
    let (unit, rest) = note.split_once('\n')?;
    let (before, texts) = rest.split_once('\n')?;
    let before = serde_json::from_str(before).ok()?;
    Some(Restarted { unit: unit.to_owned(), before, texts: texts.to_owned() })
}

/// The texts that containerd did not take, if that was noted.
pub fn refused(root: &Root) -> Option<String> {
    String::from_utf8(root.read(Path::new(REFUSED)).ok()?).ok()
}

/// Notes that containerd is being restarted.
///
/// # Errors
/// The system's error.
pub fn put_restarted(root: &Root, unit: Option<&str>, before: &[Before], texts: &str) -> io::Result<()> {
    // JSON has no line end in a text.
    let before = serde_json::to_string(before)?;
    put(root, RESTARTED, &format!("{}\n{before}\n{texts}", unit.unwrap_or_default()))
}

/// Notes that containerd does not take these texts.
///
/// # Errors
/// The system's error.
pub fn put_refused(root: &Root, texts: &str) -> io::Result<()> {
    put(root, REFUSED, texts)
}

fn put(root: &Root, path: &str, text: &str) -> io::Result<()> {
    let path = Path::new(path);
    root.put_file(path, text.as_bytes(), path, MODE)
}

/// containerd has answered, or has its configuration of before.
pub fn remove_restarted(root: &Root) {
    // A file that cannot be removed is there until the next boot.
    let _ = root.remove(Path::new(RESTARTED));
}

/// containerd has taken the runtime.
pub fn remove_all(root: &Root) {
    remove_restarted(root);
    let _ = root.remove(Path::new(REFUSED));
}
