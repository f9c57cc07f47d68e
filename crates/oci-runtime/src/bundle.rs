//! The bundle directory that containerd makes for each container: which files in it are podshim's, and how they are
//! read and written.
//!
//! Never creates or removes the directory itself: containerd does.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::unistd::Pid;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::spec::Spec;

/// Longest exec id accepted; containerd's own limit for identifiers is 76.
const EXEC_ID_LONGEST: usize = 128;

/// What is wrong with a bundle.
#[derive(Debug, Error)]
pub enum BundleError {
    /// A file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// A file does not hold what it should.
    #[error("{} is damaged: {reason}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What was found.
        reason: String,
    },
    /// The exec id cannot name a file.
    #[error("exec id {0:?} is not valid: use letters, digits, '.', '_' and '-'")]
    InvalidExecId(String),
}

/// How a container ended, kept in the bundle for the `delete` action.
///
/// containerd runs `delete` in a process of its own, even after the shim is gone, and publishes its answer. Without a
/// record, the exit status would always be 137 (containerd issue 6402).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExitRecord {
    /// Pid the container had.
    pub pid: Pid,
    /// Exit status as reported to containerd.
    pub exit_status: u32,
    /// The program's real exit status (J2).
    pub real_exit_status: u32,
    /// When it ended.
    pub exited_at: SystemTime,
}

#[derive(Serialize, Deserialize)]
struct StoredExit {
    pid: i32,
    exit_status: u32,
    /// Missing in records of earlier releases.
    real_exit_status: Option<u32>,
    exited_at_seconds: u64,
    exited_at_nanoseconds: u32,
    /// Missing in records of earlier releases.
    #[serde(default)]
    removed: bool,
}

/// A bundle directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bundle {
    path: PathBuf,
}

impl Bundle {
    /// The bundle at `path`, which need not exist any more.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the rootfs mounts of the Create request are mounted.
    pub fn rootfs(&self) -> PathBuf {
        self.path.join("rootfs")
    }

    /// The container's spec.
    pub fn spec_path(&self) -> PathBuf {
        self.path.join("config.json")
    }

    /// Where the runtime writes the pid of the container's init; containerd's shim uses the same name.
    pub fn init_pid_path(&self) -> PathBuf {
        self.path.join("init.pid")
    }

    /// The socket on which the container reports that it is ready.
    pub fn notify_socket_path(&self) -> PathBuf {
        self.path.join("notify.sock")
    }

    /// Where the runtime writes its log (CONTRACT §8).
    pub fn log_path(&self) -> PathBuf {
        self.path.join("log.json")
    }

    /// Where [`Self::write_exit`] writes.
    pub fn exit_path(&self) -> PathBuf {
        self.path.join("exit.json")
    }

    /// Where the runtime writes the pid of an exec.
    ///
    /// # Errors
    /// The id could lead out of the bundle.
    pub fn exec_pid_path(&self, exec_id: &str) -> Result<PathBuf, BundleError> {
        self.exec_path(exec_id, "pid")
    }

    /// The file with an exec's process document, for the runtime.
    ///
    /// # Errors
    /// As [`Self::exec_pid_path`].
    pub fn exec_process_path(&self, exec_id: &str) -> Result<PathBuf, BundleError> {
        self.exec_path(exec_id, "process.json")
    }

    fn exec_path(&self, exec_id: &str, suffix: &str) -> Result<PathBuf, BundleError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        let valid = (1..=EXEC_ID_LONGEST).contains(&exec_id.len())
            && exec_id.bytes().all(allowed)
            && exec_id.as_bytes()[0].is_ascii_alphanumeric();
        // "init" would be the container's own pid file.
        if !valid || exec_id == "init" {
            return Err(BundleError::InvalidExecId(exec_id.to_owned()));
        }
        Ok(self.path.join(format!("{exec_id}.{suffix}")))
    }

    /// Reads the spec.
    ///
    /// # Errors
    /// It cannot be read, or is no spec.
    pub fn read_spec(&self) -> Result<Spec, BundleError> {
        read_json(self.spec_path())
    }

    /// Reads the pid that the runtime wrote for the container's init.
    ///
    /// # Errors
    /// There is none yet, or it is no pid.
    pub fn read_init_pid(&self) -> Result<Pid, BundleError> {
        read_pid(&self.init_pid_path())
    }

    /// Records the exit. Replaces the whole file: a reader sees the old record or the new one.
    ///
    /// # Errors
    /// The record cannot be written.
    pub fn write_exit(&self, exit: &ExitRecord) -> Result<(), BundleError> {
        let since_epoch = exit.exited_at.duration_since(UNIX_EPOCH).unwrap_or_default();
        let stored = StoredExit {
            pid: exit.pid.as_raw(),
            exit_status: exit.exit_status,
            real_exit_status: Some(exit.real_exit_status),
            exited_at_seconds: since_epoch.as_secs(),
            exited_at_nanoseconds: since_epoch.subsec_nanos(),
            removed: false,
        };
        self.store_exit(&stored)
    }

    /// Adds to the recorded exit, if there is one, that nothing of the container is left: neither in its runtime nor of
    /// its mounts.
    ///
    /// # Errors
    /// The record cannot be read or written.
    pub fn mark_removed(&self) -> Result<(), BundleError> {
        match self.stored_exit()? {
            Some(stored) => self.store_exit(&StoredExit { removed: true, ..stored }),
            None => Ok(()),
        }
    }

    /// Whether [`Self::mark_removed`] was called for the record.
    pub fn is_removed(&self) -> bool {
        matches!(self.stored_exit(), Ok(Some(StoredExit { removed: true, .. })))
    }

    fn store_exit(&self, stored: &StoredExit) -> Result<(), BundleError> {
        let path = self.exit_path();
        let new = self.path.join(".exit.json.new");
        let write = || {
            fs::write(&new, serde_json::to_vec(stored)?)?;
            fs::rename(&new, &path)
        };
        write().map_err(|source| BundleError::Write { path: path.clone(), source })
    }

    fn stored_exit(&self) -> Result<Option<StoredExit>, BundleError> {
        match read_json(self.exit_path()) {
            Ok(stored) => Ok(Some(stored)),
            Err(BundleError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Reads the recorded exit; `None` if the container has not ended, or has no bundle.
    ///
    /// # Errors
    /// The record cannot be read, or is none.
    pub fn read_exit(&self) -> Result<Option<ExitRecord>, BundleError> {
        let Some(stored) = self.stored_exit()? else { return Ok(None) };
        let since_epoch = Duration::from_secs(stored.exited_at_seconds)
            .saturating_add(Duration::from_nanos(stored.exited_at_nanoseconds.into()));
        Ok(Some(ExitRecord {
            pid: Pid::from_raw(stored.pid),
            exit_status: stored.exit_status,
            real_exit_status: stored.real_exit_status.unwrap_or(stored.exit_status),
            exited_at: UNIX_EPOCH.checked_add(since_epoch).unwrap_or(UNIX_EPOCH),
        }))
    }
}

/// Reads a pid file that the runtime wrote.
pub(crate) fn read_pid(path: &Path) -> Result<Pid, BundleError> {
    let text =
        fs::read_to_string(path).map_err(|source| BundleError::Read { path: path.to_owned(), source })?;
    match text.trim().parse::<i32>() {
        Ok(pid) if pid > 0 => Ok(Pid::from_raw(pid)),
        _ => Err(BundleError::Malformed { path: path.to_owned(), reason: format!("{text:?} is not a pid") }),
    }
}

fn read_json<T: DeserializeOwned>(path: PathBuf) -> Result<T, BundleError> {
    let bytes = fs::read(&path).map_err(|source| BundleError::Read { path: path.clone(), source })?;
    serde_json::from_slice(&bytes).map_err(|error| BundleError::Malformed { path, reason: error.to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_record_survives_a_round_trip_and_is_absent_before() {
        let directory = tempfile::tempdir().unwrap();
        let bundle = Bundle::new(directory.path());
        assert_eq!(bundle.read_exit().unwrap(), None);
        let exited_at = UNIX_EPOCH + Duration::new(1_700_000_000, 123_456_789);
        let record = ExitRecord { pid: Pid::from_raw(42), exit_status: 0, real_exit_status: 137, exited_at };
        bundle.write_exit(&record).unwrap();
        assert_eq!(bundle.read_exit().unwrap(), Some(record));
        assert!(!bundle.is_removed());
        bundle.mark_removed().unwrap();
        assert!(bundle.is_removed());
        assert_eq!(bundle.read_exit().unwrap(), Some(record), "the end stays");
        let files: Vec<_> =
            fs::read_dir(directory.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
        assert_eq!(files, ["exit.json"]);
    }

    /// Packages are upgraded under live pods: records of an earlier release must be readable.
    #[test]
    fn the_exit_record_of_an_earlier_release_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let bundle = Bundle::new(directory.path());
        let earlier = r#"{"pid":42,"exit_status":3,"exited_at_seconds":1,"exited_at_nanoseconds":0}"#;
        fs::write(bundle.exit_path(), earlier).unwrap();
        let record = bundle.read_exit().unwrap().unwrap();
        assert_eq!((record.exit_status, record.real_exit_status), (3, 3));
        assert!(!bundle.is_removed(), "so `delete` looks for itself");
    }

    #[test]
    fn damaged_files_are_errors_that_name_the_file() {
        let directory = tempfile::tempdir().unwrap();
        let bundle = Bundle::new(directory.path());
        fs::write(bundle.exit_path(), "{").unwrap();
        assert!(bundle.read_exit().unwrap_err().to_string().contains("exit.json is damaged"));
        for text in ["", "x", "0", "-1"] {
            fs::write(bundle.init_pid_path(), text).unwrap();
            assert!(bundle.read_init_pid().unwrap_err().to_string().contains("is not a pid"));
        }
        fs::write(bundle.init_pid_path(), "17\n").unwrap();
        assert_eq!(bundle.read_init_pid().unwrap(), Pid::from_raw(17));
    }

    #[test]
    fn exec_ids_cannot_leave_the_bundle() {
        let bundle = Bundle::new("/bundle");
        assert_eq!(bundle.exec_pid_path("e-1.x").unwrap(), Path::new("/bundle/e-1.x.pid"));
        assert!(bundle.exec_pid_path(&"x".repeat(EXEC_ID_LONGEST)).is_ok());
        let long = "x".repeat(EXEC_ID_LONGEST + 1);
        for id in ["", "../x", "a/b", ".hidden", "init", "a b", "-a", &long] {
            assert!(matches!(bundle.exec_pid_path(id), Err(BundleError::InvalidExecId(_))), "{id:?}");
        }
    }
}
