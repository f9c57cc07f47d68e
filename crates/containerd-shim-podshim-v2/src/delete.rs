//! `delete`: containerd runs it when it cannot, or need not, ask a shim about a container (CONTRACT §1.8).
//!
//! Owns the decision between two cases that look alike from outside: the normal end of one container of a live pod,
//! which the server handles, and a dead shim, whose whole group has to be ended here (N3). Never needs the socket,
//! never fails because a file is missing, and may run any number of times.

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use containerd_shim::api::DeleteResponse;
use containerd_shim::{Flags, StartOpts};
use containerd_shim_protos::protobuf::Message;
use node_state::entry::Entry;
use node_state::paths::STATE_ROOT;
use node_state::totals::add_to_totals;
use oci_runtime::bundle::Bundle;
use thiserror::Error;
use tokio::runtime;
use tokio::task::LocalSet;
use tokio::time::Instant;

use self::exit::{now, unseen_exit};
use self::past::DeadPod;
use crate::history;
use crate::lock::FileLock;
use crate::paths::{SocketAddress, StateDir};
use crate::start::{Liveness, group_of, liveness, remove_pod_files};

mod exit;
mod group;
mod orphan;
mod past;

/// containerd kills `delete` after five seconds; one second is left for containerd's own work and a busy machine.
const TIME_LIMIT: Duration = Duration::from_secs(4);

/// Why `delete` could not even start.
#[derive(Debug, Error)]
pub enum DeleteError {
    /// Neither `-bundle` nor a working directory.
    #[error("no -bundle is given and the working directory cannot be used: {0}")]
    NoBundle(io::Error),
    /// The system refused something that the clean-up needs.
    #[error("cannot clean up: {0}")]
    Setup(io::Error),
    /// The answer cannot be written as protobuf.
    #[error("cannot encode the answer: {0}")]
    Encode(#[from] containerd_shim_protos::protobuf::Error),
}

/// The result of a `delete`.
#[derive(Debug)]
pub struct Deleted {
    /// The serialized `containerd.task.v2.DeleteResponse`.
    pub answer: Vec<u8>,
    /// What failed, for containerd's log. The answer is valid even so.
    pub problems: Vec<String>,
}

/// Cleans up after a container, and after its whole group if that has lost its shim.
///
/// # Errors
///
/// [`DeleteError`]. Failures of the clean-up itself are in [`Deleted::problems`].
pub fn run(flags: &Flags) -> Result<Deleted, DeleteError> {
    let deadline = Instant::now() + TIME_LIMIT;
    let path = match flags.bundle.as_str() {
        "" => env::current_dir().map_err(DeleteError::NoBundle)?,
        path => PathBuf::from(path),
    };
    let bundle = Bundle::new(path);
    let (address, source) = address_of(&bundle, flags);
    let state = StateDir::of_pod(&flags.namespace, &address);
    let (mut problems, mut past) = (Vec::new(), None);
    match dead_shim(&address, source, &state) {
        Ok(Some(dead)) => {
            // A shim removes its entry when it ends in an orderly way.
            let entry = Entry::read_from(state.path());
            let (dead_pod, found) = end_group(&address, &bundle, flags, deadline)?;
            problems = found;
            past = dead_pod.zip(entry).and_then(|(dead_pod, entry)| dead_pod.record(entry));
            if let Err(error) = add_to_totals(Path::new(STATE_ROOT), state.path()) {
                problems
                    .push(format!("cannot add what was counted to the totals of podshim metrics: {error}"));
            }
            if let Err(error) = remove_pod_files(address.path(), dead.server, Some(dead.bootstrap), &state) {
                problems.push(format!("mounts of the sandbox stay: {error}"));
            }
        }
        Ok(None) => {}
        // Another `delete` takes longer than this one may wait: it does the work.
        Err(error) => problems.push(format!("state of the pod: {error}")),
    }
    if let Some(past) = past
        && let Err(error) = history::keep(&past)
    {
        problems.push(format!("cannot keep the pod's record for podshim history: {error}"));
    }
    let answer = response(&bundle, &mut problems).write_to_bytes()?;
    Ok(Deleted { answer, problems })
}

/// How `delete` knows the pod's socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AddressSource {
    /// `start` wrote it into the bundle.
    Bundle,
    /// The bundle has no address: computed from the place that every containerd uses, except a 2.3 with a `socket_dir`.
    Computed,
}

/// Where the container's shim is or was. `start` wrote it into the bundle; without that file the container never had
/// one.
fn address_of(bundle: &Bundle, flags: &Flags) -> (SocketAddress, AddressSource) {
    if let Some(address) = SocketAddress::in_bundle(bundle.path()) {
        return (address, AddressSource::Bundle);
    }
    let annotations = bundle.read_spec().map(|spec| spec.annotations).unwrap_or_default();
    let group = group_of(&annotations, &flags.id);
    let containerd = StartOpts {
        address: flags.address.clone(),
        namespace: flags.namespace.clone(),
        ..StartOpts::default()
    };
    let address = SocketAddress::of_pod(&containerd, group);
    (address, AddressSource::Computed)
}

/// The locks of a pod without a shim: while they are held, no other process starts or ends the pod.
struct DeadShim {
    bootstrap: FileLock,
    server: FileLock,
}

/// Takes the locks if the pod has no live shim. Other `delete`s of the group wait here for the first one.
fn dead_shim(
    address: &SocketAddress,
    source: AddressSource,
    state: &StateDir,
) -> io::Result<Option<DeadShim>> {
    let bootstrap = FileLock::acquire(&state.bootstrap_lock(), TIME_LIMIT)?;
    let lock = state.server_lock();
    let server_pid = fs::read_to_string(&lock).ok().and_then(|pid| pid.trim().parse().ok());
    let is_dying = || server_pid.is_some_and(is_dead_or_dying);
    let server = match FileLock::try_acquire(&lock)? {
        Some(server) => server,
        // A shim whose socket is only computed may listen elsewhere: its held lock alone shows that it lives.
        None if !is_dying() && (source == AddressSource::Computed || is_listening(address)) => {
            return Ok(None);
        }
        // A server that has closed its socket is ending and serves no caller: this process may remove what it leaves.
        None => FileLock::acquire(&lock, TIME_LIMIT)?,
    };
    // The lock's file may have been removed by hand under a live server: ending its whole pod would be a grave mistake.
    if is_listening(address) && !is_dying() {
        return Ok(None);
    }
    Ok(Some(DeadShim { bootstrap, server }))
}

/// Whether a process has ended, or was killed and still has files open. The kernel closes its descriptors one by one,
/// so containerd's connections, and with them the call of `delete`, come before the listening socket and the lock are
/// closed. By then the process has no program any more.
fn is_dead_or_dying(pid: u32) -> bool {
    fs::read_link(format!("/proc/{pid}/exe")).is_err()
}

fn is_listening(address: &SocketAddress) -> bool {
    liveness(address).is_ok_and(|liveness| liveness == Liveness::Listening)
}

fn end_group(
    address: &SocketAddress,
    bundle: &Bundle,
    flags: &Flags,
    deadline: Instant,
) -> Result<(Option<DeadPod>, Vec<String>), DeleteError> {
    let members = group::members(address, bundle, &flags.id, &flags.namespace);
    if members.is_empty() {
        return Ok((None, Vec::new()));
    }
    let dead_pod = DeadPod::of(&members);
    let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(DeleteError::Setup)?;
    let ending = group::end(members, &flags.namespace, deadline);
    let problems = LocalSet::new().block_on(&runtime, ending).map_err(DeleteError::Setup);
    // A runtime that hangs must not keep this process from ending: containerd limits its time.
    runtime.shutdown_background();
    Ok((Some(dead_pod), problems?))
}

/// What is known of the container's end: the exit that the server recorded; otherwise, for a container that was
/// created, a kill; for one that never was, nothing (trap 17). An unreadable record counts as no record.
fn response(bundle: &Bundle, problems: &mut Vec<String>) -> DeleteResponse {
    let recorded = bundle.read_exit().unwrap_or_else(|error| {
        problems.push(error.to_string());
        None
    });
    let Some(exit) = recorded.or_else(|| bundle.read_init_pid().ok().map(|pid| unseen_exit(pid, now())))
    else {
        return DeleteResponse::default();
    };
    DeleteResponse {
        pid: exit.pid.as_raw().unsigned_abs(),
        exit_status: exit.exit_status,
        exited_at: Some(exit.exited_at.into()).into(),
        ..DeleteResponse::default()
    }
}
