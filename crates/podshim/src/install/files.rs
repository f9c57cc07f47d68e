//! Changes of files: what each file was, what it becomes, and making all changes or none.
//!
//! Owns every write of `install` and `uninstall`. It replaces each file as a whole, so that a process that reads
//! meanwhile, or a node that loses power, has the old file or the new one.

use std::fs;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

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
pub struct Change {
    /// As this process reaches it. Links are followed, to replace the file and not the link to it, unless the change
    /// makes a link or removes the path.
    pub path: PathBuf,
    /// What is there.
    pub before: Content,
    /// What shall be there.
    pub after: Content,
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
pub fn read_text(path: &Path) -> Result<Option<String>, FileError> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(FileError::read(path, error)),
    }
}

impl Change {
    /// The change of `path` from its present content to `after`.
    ///
    /// # Errors
    /// The present content cannot be read.
    pub fn new(path: PathBuf, after: Content) -> Result<Self, FileError> {
        let is_link = fs::symlink_metadata(&path).is_ok_and(|metadata| metadata.is_symlink());
        let ours = matches!(after, Content::Link(_) | Content::Absent);
        let path = if is_link && !ours { fs::canonicalize(&path).unwrap_or(path) } else { path };
        let before = if is_link && ours {
            fs::read_link(&path).map(Content::Link)
        } else {
            fs::read(&path).map(|bytes| match String::from_utf8(bytes) {
                Ok(text) => Content::Text(text),
                Err(error) => Content::Program(error.into_bytes()),
            })
        };
        let before = match before {
            Ok(content) => content,
            Err(error) if error.kind() == ErrorKind::NotFound => Content::Absent,
            Err(error) => return Err(FileError::read(&path, error)),
        };
        Ok(Self { path, before, after })
    }

    /// Whether the file already is as it shall be.
    pub fn is_nothing(&self) -> bool {
        match (&self.before, &self.after) {
            (Content::Text(before), Content::Program(after)) => before.as_bytes() == after,
            (Content::Text(before), Content::Copy { text, .. }) => before == text,
            (before, after) => before == after,
        }
    }

    fn apply(&self, content: &Content) -> Result<(), FileError> {
        put(&self.path, content).map_err(|error| FileError::write(&self.path, error))
    }
}

/// Makes all changes; if one fails, reverts those before it.
///
/// # Errors
/// The system's error for the change that failed; all changes before it have been reverted.
pub fn apply(changes: &[Change]) -> Result<(), FileError> {
    for (index, change) in changes.iter().enumerate() {
        if let Err(error) = change.apply(&change.after) {
            for done in changes[..index].iter().rev() {
                // Report only the first error: a change that cannot be reverted can be installed again.
                let _ = done.apply(&done.before);
            }
            return Err(error);
        }
    }
    Ok(())
}

fn put(path: &Path, content: &Content) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("/"));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let new = directory.join(format!(".{name}.podshim-new"));
    if *content == Content::Absent {
        return remove(path, directory);
    }
    fs::create_dir_all(directory)?;
    let written = match content {
        Content::Absent => Ok(()),
        Content::Text(text) => write(&new, text.as_bytes(), path, 0o644),
        Content::Program(bytes) => write(&new, bytes, path, 0o755),
        Content::Copy { of, text } => write(&new, text.as_bytes(), of, 0o600),
        Content::Link(target) => symlink(target, &new),
    };
    let written = written.and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        // Report only the first error.
        let _ = fs::remove_file(&new);
    }
    written
}

fn remove(path: &Path, directory: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // Remove podshim's own directories with their last file.
    let own = ["podshim", "cri-containerd-.scope.d"];
    if directory.file_name().is_some_and(|name| own.iter().any(|own| name == *own)) {
        let _ = fs::remove_dir(directory);
    }
    Ok(())
}

/// Writes a file with the mode and owner of `like`, or with `mode` if `like` does not exist.
fn write(new: &Path, bytes: &[u8], like: &Path, mode: u32) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(new)?;
    file.write_all(bytes)?;
    match fs::metadata(like) {
        Ok(metadata) => {
            chown(new, Some(metadata.uid()), Some(metadata.gid()))?;
            file.set_permissions(fs::Permissions::from_mode(metadata.mode() & 0o7777))?;
        }
        Err(_) => file.set_permissions(fs::Permissions::from_mode(mode))?,
    }
    file.sync_all()
}
