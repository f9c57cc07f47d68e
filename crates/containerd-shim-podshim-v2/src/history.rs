//! The record of a pod that is gone, for `podshim history`.
//!
//! Owns who writes it: a process of its own, with nothing of the pod's open. A disk that hangs then delays neither the
//! release of the pod's lock nor a caller that waits for the pod's end.

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
use control_api::entry::STATE_ROOT;
use control_api::past::{self, Bounds, HISTORY_ROOT};
use nix::fcntl::{Flock, FlockArg};
use nix::sys::memfd::{MFdFlags, memfd_create};

use crate::args::WRITE_HISTORY;
use crate::paths::NODE_FILE;

/// The environment variable with the record's place.
const FILE: &str = "PODSHIM_HISTORY_FILE";
/// Writers at a time, and how long one waits for its turn.
const SLOTS: usize = 8;
const SLOT_TRIES: u32 = 100;
const SLOT_RETRY: Duration = Duration::from_millis(50);
/// What `ps` shows of the writer: it is no shim.
const NAME: &str = "podshim-history";

/// Hands the record to a process that writes it. podshim does not wait for it: the reaper of orphans gets its exit.
///
/// # Errors
/// No memory, or no more processes.
#[expect(clippy::disallowed_methods, reason = "nothing is served any more: no reaper would take its exit")]
pub fn keep(past: &Past) -> io::Result<()> {
    let bytes = past.write_to_bytes().map_err(io::Error::other)?;
    let mut record = File::from(memfd_create(c"history", MFdFlags::MFD_CLOEXEC)?);
    record.write_all(&bytes)?;
    record.rewind()?;
    Command::new("/proc/self/exe")
        .arg0(NAME)
        .arg(WRITE_HISTORY)
        .env(FILE, past.file())
        .current_dir("/")
        .stdin(Stdio::from(OwnedFd::from(record)))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map(drop)
}

/// One of a few places at the disk: where it hangs, the writers of a busy node must not become more and more.
fn slot() -> Option<Flock<File>> {
    for _ in 0..SLOT_TRIES {
        for number in 0..SLOTS {
            // Not a `FileLock`, which would create a directory that a purge of podshim has removed.
            let file = File::create(Path::new(STATE_ROOT).join(format!("history.{number}"))).ok()?;
            if let Ok(slot) = Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                return Some(slot);
            }
        }
        std::thread::sleep(SLOT_RETRY);
    }
    None
}

/// Writes the record that is on stdin, within what the node's file allows.
///
/// # Errors
/// Too many writers wait for the disk, or the directory cannot be written.
pub fn write() -> io::Result<()> {
    let file = env::var_os(FILE).ok_or_else(|| io::Error::other("run by an ending shim, not by hand"))?;
    let mut bytes = Vec::new();
    io::stdin().lock().read_to_end(&mut bytes)?;
    // A mistake in the file must not lose what happened.
    let bounds =
        shim_service::node::read(Path::new(NODE_FILE)).map(|node| node.history()).unwrap_or_default();
    let Some(_slot) = slot() else { return Err(io::Error::other("too many others wait for the disk")) };
    let bounds = Bounds { size: bounds.size, namespace_size: bounds.namespace_size, age: bounds.age };
    past::keep(Path::new(HISTORY_ROOT), Path::new(&file), &bytes, &bounds)
}
