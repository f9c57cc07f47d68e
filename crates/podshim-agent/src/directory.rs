//! A watch of the run directory: a pod's entry comes, or a pod's directory goes.
//!
//! Owns the watches: of the root, of each of containerd's namespaces, and of a pod's directory until its entry is there. A shim writes
//! its entry again with each count: that is no change here. Never writes.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify};
use node_state::entry::FILE;
use thiserror::Error;
use threads::async_file::register;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// Why the directory cannot be watched or read.
#[derive(Debug, Error)]
#[error("cannot watch {}: {source}", path.display())]
pub struct DirectoryError {
    path: PathBuf,
    source: io::Error,
}

impl DirectoryError {
    /// Of that directory.
    #[must_use]
    pub fn of(path: &Path, source: io::Error) -> Self {
        Self { path: path.to_owned(), source }
    }
}

/// The watch.
pub struct Watch {
    root: PathBuf,
    inotify: Inotify,
    /// Another descriptor of the same.
    changes: AsyncFd<File>,
    /// The pods whose entry was there.
    known: BTreeSet<PathBuf>,
}

impl Watch {
    /// Watches that directory. Its first [`Watch::renew`] watches what is in it.
    ///
    /// # Errors
    /// The directory is not there, or the kernel has no watch left.
    pub fn new(root: &Path) -> Result<Self, DirectoryError> {
        let open = || {
            let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)?;
            let changes = File::from(inotify.as_fd().try_clone_to_owned()?);
            Ok((inotify, register(changes, Interest::READABLE)?))
        };
        let (inotify, changes) = open().map_err(|source| DirectoryError::of(root, source))?;
        Ok(Self { root: root.to_owned(), inotify, changes, known: BTreeSet::new() })
    }

    /// Waits until something has changed. It may be dropped at any time.
    ///
    /// # Errors
    /// The kernel's.
    pub async fn changed(&self) -> Result<(), DirectoryError> {
        let failed = |source| DirectoryError::of(&self.root, source);
        let mut ready = self.changes.readable().await.map_err(failed)?;
        loop {
            match self.inotify.read_events() {
                Ok(_) => {}
                Err(Errno::EAGAIN) => {
                    ready.clear_ready();
                    return Ok(());
                }
                Err(errno) => return Err(failed(errno.into())),
            }
        }
    }

    /// Watches what is new. Call it before the entries are read: what comes later is a change.
    ///
    /// # Errors
    /// The root cannot be watched.
    pub fn renew(&mut self) -> Result<(), DirectoryError> {
        let comes_and_goes = AddWatchFlags::IN_CREATE
            | AddWatchFlags::IN_DELETE
            | AddWatchFlags::IN_MOVED_TO
            | AddWatchFlags::IN_MOVED_FROM
            | AddWatchFlags::IN_ONLYDIR;
        self.add(&self.root, comes_and_goes).map_err(|source| DirectoryError::of(&self.root, source))?;
        let mut pods = BTreeSet::new();
        for namespace in directories(&self.root) {
            match self.add(&namespace, comes_and_goes) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    eprintln!("podshim-agent: {}", DirectoryError::of(&namespace, error));
                }
                // Or it is gone meanwhile: no matter.
                Ok(()) | Err(_) => {}
            }
            pods.extend(directories(&namespace));
        }
        self.known.retain(|pod| pods.contains(pod));
        for pod in pods {
            if self.known.contains(&pod) {
                continue;
            }
            match self.add(&pod, AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_ONESHOT) {
                Ok(()) => {}
                // Gone meanwhile: no matter.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                // Its entry is found at the next change of another pod.
                Err(error) => eprintln!("podshim-agent: {}", DirectoryError::of(&pod, error)),
            }
            if pod.join(FILE).exists() {
                self.known.insert(pod);
            }
        }
        Ok(())
    }

    fn add(&self, path: &Path, flags: AddWatchFlags) -> io::Result<()> {
        self.inotify.add_watch(path, flags)?;
        Ok(())
    }
}

fn directories(below: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(below).into_iter().flatten().flatten();
    entries
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    async fn has_changed(watch: &mut Watch) -> bool {
        let changed = timeout(Duration::from_millis(200), watch.changed()).await.is_ok();
        watch.renew().unwrap();
        changed
    }

    #[tokio::test]
    async fn a_pod_that_comes_or_goes_is_a_change_and_a_count_is_none() {
        let root = tempfile::tempdir().unwrap();
        let mut watch = Watch::new(root.path()).unwrap();
        watch.renew().unwrap();
        assert!(!has_changed(&mut watch).await);
        let pod = root.path().join("k8s.io/abc");
        fs::create_dir_all(&pod).unwrap();
        assert!(has_changed(&mut watch).await);
        let write = || {
            fs::write(pod.join(".pod.json"), "{}").unwrap();
            fs::rename(pod.join(".pod.json"), pod.join(FILE)).unwrap();
        };
        write();
        assert!(has_changed(&mut watch).await, "its entry");
        write();
        // The watch of a pod whose entry was there when it was found first goes with this one.
        has_changed(&mut watch).await;
        write();
        assert!(!has_changed(&mut watch).await, "its counts");
        fs::remove_dir_all(&pod).unwrap();
        assert!(has_changed(&mut watch).await);
    }

    #[tokio::test]
    async fn a_directory_that_is_not_there_is_an_error() {
        let root = tempfile::tempdir().unwrap();
        let mut watch = Watch::new(&root.path().join("none")).unwrap();
        assert!(watch.renew().unwrap_err().to_string().contains("none"));
    }
}
