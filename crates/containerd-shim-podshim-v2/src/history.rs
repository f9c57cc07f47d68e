//! The record of a pod that is gone, for `podshim history`.
//!
//! Owns the process that writes it: one of its own, without open files of the pod. So a disk that hangs delays neither
//! the release of the pod's lock nor a caller that waits for the pod's end.

use std::env;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use containerd_shim_protos::protobuf::Message;
use control_api::Past;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::memfd::{MFdFlags, memfd_create};
use node_state::past::{self, Bounds, HISTORY_ROOT};
use node_state::paths::{NODE_FILE, STATE_ROOT};

use crate::args::WRITE_HISTORY;

/// The environment variable with the path of the record.
const FILE: &str = "PODSHIM_HISTORY_FILE";
/// How many writers may write at a time, and how often and how long one waits for its turn.
const SLOTS: usize = 8;
const SLOT_TRIES: u32 = 100;
const SLOT_RETRY: Duration = Duration::from_millis(50);
/// The writer's name in `ps`: it must not look like a shim.
const NAME: &str = "podshim-history";

/// Passes the record to a process that writes it. podshim does not wait for that process: the reaper of orphans gets
/// its exit.
///
/// # Errors
/// The system has no memory or no process left.
#[expect(clippy::disallowed_methods, reason = "nothing is served any more: no reaper would take its exit")]
pub fn keep(past: &Past) -> io::Result<()> {
    let bytes = past.write_to_bytes().map_err(io::Error::other)?;
    let mut record = File::from(memfd_create(c"history", MFdFlags::MFD_CLOEXEC)?);
    record.write_all(&bytes)?;
    record.rewind()?;
    Command::new("/proc/self/exe")
        .arg0(NAME)
        .arg(WRITE_HISTORY)
        .env(FILE, past::file_of(past))
        .current_dir("/")
        .stdin(Stdio::from(OwnedFd::from(record)))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map(drop)
}

/// Takes one of a few slots for writing: if the disk hangs, the writers of a busy node must not pile up. Looks that many
/// times for a free one.
fn slot(root: &Path, tries: u32) -> Option<Flock<File>> {
    for _ in 0..tries {
        for number in 0..SLOTS {
            // Not a `FileLock`: it would recreate a directory that a purge of podshim has removed.
            let file = File::create(root.join(format!("history.{number}"))).ok()?;
            if let Ok(slot) = Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                return Some(slot);
            }
        }
        std::thread::sleep(SLOT_RETRY);
    }
    None
}

/// Writes the record from stdin, within the limits of the node's file.
///
/// # Errors
/// Too many writers wait for the disk, or the directory is not writable.
pub fn write() -> io::Result<()> {
    let file = env::var_os(FILE)
        .ok_or_else(|| io::Error::other("-write-history is for an ending shim, not for use by hand"))?;
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes)?;
    // A mistake in the node's file must not lose the record.
    let bounds =
        shim_service::node::read(Path::new(NODE_FILE)).map(|node| node.history()).unwrap_or_default();
    let Some(_slot) = slot(Path::new(STATE_ROOT), SLOT_TRIES) else {
        return Err(io::Error::other("too many other writers wait for the disk"));
    };
    let bounds = Bounds { size: bounds.size, namespace_size: bounds.namespace_size, age: bounds.age };
    past::keep(Path::new(HISTORY_ROOT), Path::new(&file), &bytes, &bounds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_few_write_at_a_time_and_no_writer_waits_for_ever() {
        let root = tempfile::tempdir().unwrap();
        let take = || slot(root.path(), 2);
        let mut taken: Vec<_> = (0..SLOTS).map(|_| take().unwrap()).collect();
        assert!(take().is_none());
        drop(taken.pop());
        assert!(take().is_some());
    }

    #[test]
    fn without_podshims_directory_there_is_no_slot_and_none_is_created() {
        let root = tempfile::tempdir().unwrap();
        let purged = root.path().join("podshim");
        assert!(slot(&purged, SLOT_TRIES).is_none());
        assert!(!purged.exists());
        std::fs::write(&purged, "a file").unwrap();
        assert!(slot(&purged, SLOT_TRIES).is_none());
    }
}
