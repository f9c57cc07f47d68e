//! Changes of files: what each file was, what it becomes, and making all changes or none.
//!
//! Owns every write of `install` and `uninstall`. It replaces each file as a whole, so that a process that reads
//! meanwhile, or a node that loses power, has the old file or the new one.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::root::{Rights, Root};

/// What is, or shall be, at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// No file.
    Absent,
    /// A text for people, whose difference can be shown.
    Text(String),
    /// A program, or anything else that is not text; its mode allows execution.
    Program(Vec<u8>),
    /// A symbolic link to this path.
    Link(PathBuf),
    /// The old text of another file, with that file's mode and owner: it may hold passwords of registries.
    Copy {
        /// The other file.
        of: PathBuf,
        /// What was in it.
        text: String,
    },
}

/// The change of one file.
#[derive(Clone, Debug)]
pub struct FileChange {
    /// The file system that has the file.
    root: Root,
    /// On the node. Links are followed, to replace the file and not the link to it, unless the change makes a link or
    /// removes the path.
    path: PathBuf,
    /// What is there.
    pub before: Content,
    /// What shall be there.
    pub after: Content,
    /// The rights of the file that is there.
    rights: Option<Rights>,
}

/// A file that cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{path}: {action}: {source}")]
pub struct FileError {
    path: PathBuf,
    action: &'static str,
    source: io::Error,
}

impl FileError {
    /// It cannot be read.
    pub fn read(path: &Path, source: io::Error) -> Self {
        Self { path: path.to_owned(), action: "cannot be read", source }
    }

    fn write(path: &Path, source: io::Error) -> Self {
        Self { path: path.to_owned(), action: "cannot be written", source }
    }
}

/// The text of a file; `None` if there is none.
///
/// # Errors
/// The system's error, or the file is not UTF-8.
pub fn read_text(root: &Root, path: &Path) -> Result<Option<String>, FileError> {
    let text = root.read(path).and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other));
    match text {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(FileError::read(&root.shown(path), error)),
    }
}

impl FileChange {
    /// The change of the file at `path` to `after`.
    ///
    /// # Errors
    /// The present content cannot be read.
    pub fn new(root: &Root, path: PathBuf, after: Content) -> Result<Self, FileError> {
        let failed = |path: &Path, error| FileError::read(&root.shown(path), error);
        let link = root.read_link(&path).map_err(|error| failed(&path, error))?;
        let (path, before) = match (link, &after) {
            (Some(target), Content::Link(_) | Content::Absent) => (path, Ok(Content::Link(target))),
            (Some(_), _) => {
                let path = root.behind_links(&path).map_err(|error| failed(&path, error))?;
                let before = content(root, &path);
                (path, before)
            }
            (None, _) => {
                let before = content(root, &path);
                (path, before)
            }
        };
        let before = before.map_err(|error| failed(&path, error))?;
        let rights = root.rights(&path);
        Ok(Self { root: root.clone(), path, before, after, rights })
    }

    /// The path on the node.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path as people find it from here.
    pub fn shown(&self) -> PathBuf {
        self.root.shown(&self.path)
    }

    /// The change that gives the file back what it was, once this one has been made.
    pub fn reversed(&self) -> Self {
        let (before, after) = (self.after.clone(), self.before.clone());
        Self { root: self.root.clone(), path: self.path.clone(), before, after, rights: self.rights }
    }

    /// Whether the file already is as it shall be.
    pub fn is_nothing(&self) -> bool {
        match (&self.before, &self.after) {
            (Content::Text(before), Content::Program(after)) => before.as_bytes() == after,
            (Content::Text(before), Content::Copy { text, .. }) => before == text,
            (before, after) => before == after,
        }
    }

    fn make(&self) -> Result<(), FileError> {
        self.written(put(&self.root, &self.path, &self.after))
    }

    /// Reverts the change: the file has its content and its rights again.
    fn revert(&self) -> Result<(), FileError> {
        let bytes = match &self.before {
            Content::Text(text) => Some(text.as_bytes()),
            Content::Program(bytes) => Some(&bytes[..]),
            Content::Absent | Content::Link(_) | Content::Copy { .. } => None,
        };
        self.written(match (bytes, self.rights) {
            (Some(bytes), Some(rights)) => self.root.put_file_back(&self.path, bytes, rights),
            _ => put(&self.root, &self.path, &self.before),
        })
    }

    fn written(&self, result: io::Result<()>) -> Result<(), FileError> {
        result.map_err(|error| FileError::write(&self.shown(), error))
    }

    /// Removes a directory of podshim's own in which the file was, if it is empty.
    fn remove_own_directory(&self) {
        let own = ["podshim", "cri-containerd-.scope.d"];
        let directory = self.path.parent().unwrap_or(Path::new("/"));
        if directory.file_name().is_some_and(|name| own.iter().any(|own| name == *own)) {
            self.root.remove_empty(directory);
        }
    }
}

/// What is at a path that is no symlink.
fn content(root: &Root, path: &Path) -> io::Result<Content> {
    match root.read(path).map(String::from_utf8) {
        Ok(Ok(text)) => Ok(Content::Text(text)),
        Ok(Err(error)) => Ok(Content::Program(error.into_bytes())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Content::Absent),
        Err(error) => Err(error),
    }
}

/// Makes all changes; if one fails, reverts those before it.
///
/// # Errors
/// The system's error for the change that failed; all changes before it have been reverted.
pub fn apply(changes: &[FileChange]) -> Result<(), FileError> {
    let mut result = Ok(());
    for (index, change) in changes.iter().enumerate() {
        result = change.make();
        if result.is_err() {
            revert(&changes[..index]);
            break;
        }
    }
    // At the end: a directory that was removed before a failure would come back with other rights.
    changes.iter().for_each(FileChange::remove_own_directory);
    result
}

/// Reverts changes, the last one first. Passes over one that cannot be reverted: it can be installed again.
fn revert(changes: &[FileChange]) {
    for change in changes.iter().rev() {
        let _ = change.revert();
    }
}

fn put(root: &Root, path: &Path, content: &Content) -> io::Result<()> {
    match content {
        Content::Absent => root.remove(path),
        Content::Text(text) => root.put_file(path, text.as_bytes(), path, 0o644),
        Content::Program(bytes) => root.put_file(path, bytes, path, 0o755),
        Content::Copy { of, text } => root.put_file(path, text.as_bytes(), of, 0o600),
        Content::Link(target) => root.put_link(path, target),
    }
}
