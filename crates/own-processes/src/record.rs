//! What is kept of a sandbox for those who come after the shim: the path of its groups, from which its processes are found.
//!
//! Not in the bundle: containerd 1.7 removes the bundles of a dead shim while `delete` ends what is in them (N3).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// How often the folder is made for one record, which other shims remove when they remove the last one in it.
const TRIES: u32 = 1000;

/// The place of one sandbox's record, beside the OCI runtime's own state.
#[derive(Debug)]
pub struct Record(PathBuf);

/// Whether podshim has made a sandbox of that id, of which something may be left. `root` is the OCI runtime's.
pub fn is_recorded(root: &Path, id: &str) -> bool {
    Record::of(root, id).0.exists()
}

impl Record {
    /// `root` is that of the OCI runtime, whose last part is containerd's namespace. No namespace begins with a dot, so this
    /// folder is the root of none.
    pub fn of(root: &Path, id: &str) -> Self {
        let namespace = root.file_name().unwrap_or_default().to_string_lossy();
        Self(root.with_file_name(format!(".{namespace}.podshim")).join(id))
    }

    /// Before anything of the sandbox exists.
    ///
    /// # Errors
    /// The kernel's.
    pub fn write(&self, cgroups_path: &str) -> io::Result<()> {
        for _ in 1..TRIES {
            match self.try_to_write(cgroups_path).map_err(|error| (error.kind(), error)) {
                // Another shim removes the folder with its last record: before this one is in it, or while the folder is made.
                Err((io::ErrorKind::NotFound | io::ErrorKind::AlreadyExists, _)) => {}
                written => return written.map_err(|(_, error)| error),
            }
        }
        self.try_to_write(cgroups_path)
    }

    fn try_to_write(&self, cgroups_path: &str) -> io::Result<()> {
        if let Some(folder) = self.0.parent() {
            fs::create_dir_all(folder)?;
        }
        fs::write(&self.0, cgroups_path)
    }

    /// The path of its groups; `None` if podshim has made no such sandbox.
    ///
    /// # Errors
    /// The kernel's.
    pub fn read(&self) -> io::Result<Option<String>> {
        match fs::read_to_string(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            read => read.map(Some),
        }
    }

    /// When nothing of the sandbox is left. The folder goes with its last record.
    ///
    /// # Errors
    /// The kernel's.
    pub fn remove(&self) -> io::Result<()> {
        match fs::remove_file(&self.0) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        if let Some(folder) = self.0.parent() {
            // It has others in it.
            let _ = fs::remove_dir(folder);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The folder goes with its last record, which may be between another shim's two steps.
    #[test]
    fn a_record_is_written_while_the_last_other_one_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().join("k8s.io");
        let turns = |id: &'static str| {
            let record = Record::of(&root, id);
            move || {
                for _ in 0..5000 {
                    record.write("/group").unwrap();
                    record.remove().unwrap();
                }
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(turns("one"));
            scope.spawn(turns("other"));
        });
    }

    /// Two namespaces of containerd may have containers of the same id.
    #[test]
    fn each_root_has_records_of_its_own() {
        let place = |root: &str| Record::of(Path::new(root), "shop").0;
        assert_ne!(place("/run/runc/k8s.io"), place("/run/runc/k8s.local"));
        // No namespace of containerd begins with a dot, so this is the root of none.
        assert_eq!(place("/run/runc/k8s.io"), Path::new("/run/runc/.k8s.io.podshim/shop"));
    }
}
