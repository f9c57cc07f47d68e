//! Locks on files that may be removed and created again.
//!
//! Owns the only way to take such a lock: `flock` on an open file. The kernel releases it with the file's last
//! descriptor, however its holders end. Never waits without a limit.

use std::fs::{self, DirBuilder, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// A locked file. Dropping it closes the descriptor; the lock ends with the last copy of the descriptor.
#[derive(Debug)]
pub struct FileLock {
    file: File,
    path: PathBuf,
}

/// Whether a call may wait for a lock's holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LockMode {
    Blocking,
    NonBlocking,
}

impl FileLock {
    /// Takes the lock if it is free; `None` if another process holds it.
    ///
    /// # Errors
    ///
    /// The system's error if the file cannot be made or opened.
    pub fn try_acquire(path: &Path) -> io::Result<Option<Self>> {
        take(path, LockMode::NonBlocking)
    }

    /// Takes the lock, and waits for its holder for at most `limit`.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::TimedOut`] if the holder kept it, or the system's error.
    pub fn acquire(path: &Path, limit: Duration) -> io::Result<Self> {
        // The lock is usually free, and a thread would cost the start of a pod more than the lock does.
        if let Some(lock) = Self::try_acquire(path)? {
            return Ok(lock);
        }
        // `flock` has no timeout. A thread that still waits in it ends with the process, which is short-lived.
        let (sender, receiver) = mpsc::sync_channel(0);
        let waiting_for = path.to_owned();
        thread::Builder::new()
            .name("lock".to_owned())
            .spawn(move || drop(sender.send(take(&waiting_for, LockMode::Blocking))))?;
        match receiver.recv_timeout(limit) {
            Ok(Ok(Some(lock))) => Ok(lock),
            Ok(Err(error)) => Err(error),
            Ok(Ok(None)) | Err(_) => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("{} is still locked after {limit:?}", path.display()),
            )),
        }
    }

    /// The open file: a process that inherits it holds the lock.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Makes a lock from an inherited descriptor; another process has locked the file with [`Self::acquire`].
    pub fn inherited(file: File, path: PathBuf) -> Self {
        Self { file, path }
    }

    /// Removes the file, then releases the lock.
    pub fn remove(self) {
        // It may be gone already.
        let _ = fs::remove_file(&self.path);
    }
}

fn take(path: &Path, mode: LockMode) -> io::Result<Option<FileLock>> {
    loop {
        let file = match open(path) {
            Ok(file) => file,
            // The last holder removed the directory after it was made and before the file was.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        match mode {
            LockMode::Blocking => file.lock()?,
            LockMode::NonBlocking => match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error),
            },
        }
        // The previous holder may have removed the file: a lock on a removed file excludes no process.
        let current = fs::metadata(path).map(|file| (file.dev(), file.ino())).ok();
        let opened = file.metadata()?;
        if current == Some((opened.dev(), opened.ino())) {
            return Ok(Some(FileLock { file, path: path.to_owned() }));
        }
    }
}

fn open(path: &Path) -> io::Result<File> {
    if let Some(dir) = path.parent() {
        match DirBuilder::new().recursive(true).mode(0o700).create(dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_excludes_and_is_free_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sub/lock");
        let lock = FileLock::try_acquire(&path).unwrap().unwrap();
        assert!(FileLock::try_acquire(&path).unwrap().is_none());
        let error = FileLock::acquire(&path, Duration::from_millis(20)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        drop(lock);
        FileLock::acquire(&path, Duration::from_secs(10)).unwrap();
    }

    /// The server inherits its lock: when `start` closes its copy, the lock must remain.
    #[test]
    fn a_copy_of_the_descriptor_keeps_the_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let lock = FileLock::try_acquire(&path).unwrap().unwrap();
        let copy = lock.file().try_clone().unwrap();
        drop(lock);
        assert!(FileLock::try_acquire(&path).unwrap().is_none());
        drop(copy);
        assert!(FileLock::try_acquire(&path).unwrap().is_some());
    }

    /// A waiter that wakes up with a lock on a removed file must take the lock on the new one.
    #[test]
    fn a_removed_file_is_no_lock() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sub/lock");
        let mut inside = std::sync::atomic::AtomicU32::new(0);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let lock = FileLock::acquire(&path, Duration::from_secs(30)).unwrap();
                        assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                        assert_eq!(inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst), 1);
                        lock.remove();
                    }
                });
            }
        });
        assert_eq!(*inside.get_mut(), 0);
    }
}
