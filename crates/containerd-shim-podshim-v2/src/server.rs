//! The pod's server: everything around the service itself.
//!
//! Owns the process: its log, its tokio runtime, its log line at a panic, and the removal of its socket and state when
//! it ends in an orderly way. `shim-service` owns the service.

use std::env;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::net::SocketAddr;
use std::panic;
use std::path::Path;
use std::time::Duration;

use containerd_shim::Flags;
use control_api::Past;
use node_state::paths::{DRAINING_FILE, NODE_FILE, STATE_ROOT};
use node_state::totals::add_to_totals;
use shim_service::ServeConfig;
use thiserror::Error;
use threads::busy;
use tokio::runtime;
use tokio::task::LocalSet;

use crate::args::log_level;
use crate::history;
use crate::lock::FileLock;
use crate::logging;
use crate::paths::{SocketAddress, StateDir};
use crate::server_process::{InheritedDescriptors, TTRPC_ADDRESS, stop_signals};
use crate::start::remove_pod_files;

/// The fifo in the bundle that containerd copies to its own log.
const LOG_FIFO: &str = "log";
/// How long an ending server waits for another process that is checking the pod.
const BOOTSTRAP_LIMIT: Duration = Duration::from_millis(200);

/// Why the server failed.
#[derive(Debug, Error)]
pub enum ServerError {
    /// It was not started by `start`.
    #[error("{0}")]
    ByHand(&'static str),
    /// The socket it inherited has no path.
    #[error("the inherited socket cannot be used: {0}")]
    Socket(io::Error),
    /// The system refused something that a server needs.
    #[error("cannot set the server up: {0}")]
    Setup(io::Error),
    /// The service failed.
    #[error("{0}")]
    Service(String),
}

/// Serves the pod until it is gone.
///
/// # Errors
///
/// [`ServerError`]; socket and state are removed even then, unless this process is not a server at all.
pub fn run(flags: &Flags) -> Result<(), ServerError> {
    let inherited = InheritedDescriptors::take().map_err(ServerError::ByHand)?;
    let path = inherited.listener.local_addr().map_err(ServerError::Socket)?;
    let address =
        path.as_pathname().and_then(SocketAddress::at).ok_or_else(|| ServerError::Socket(no_path(&path)))?;
    let state = StateDir::of_pod(&flags.namespace, &address);
    // Held to the end of this function; the service gets a copy of the descriptor.
    let lock = inherited.lock.try_clone().map_err(ServerError::Setup)?;
    let lock = FileLock::inherited(lock, state.server_lock());

    let log = logging::init(Path::new(LOG_FIFO), log_level(flags.debug));
    log_panics();
    let result = serve(flags, inherited, &state, log);
    // A `delete` that found the entry would take this shim for a killed one.
    if let Err(error) = add_to_totals(Path::new(STATE_ROOT), state.path()) {
        tracing::warn!(%error, "cannot add what was counted to the totals of podshim metrics");
    }
    if let Err(error) = &result {
        tracing::error!(%error, "the pod's server failed and ends");
    }
    leave(&address, lock, &state, BOOTSTRAP_LIMIT);
    // Last, so that a disk that hangs blocks nothing that another process waits for.
    if let Some(past) = result?
        && let Err(error) = history::keep(&past)
    {
        tracing::warn!(%error, "cannot keep the pod's record for podshim history");
    }
    Ok(())
}

/// Removes the pod's files, or leaves them to the holder of the bootstrap lock. The mounts of a sandbox went when it ended, with
/// a warning if one could not.
fn leave(address: &SocketAddress, lock: FileLock, state: &StateDir, limit: Duration) {
    if let Ok(Some(bootstrap)) = FileLock::try_acquire(&state.bootstrap_lock()) {
        let _ = remove_pod_files(address.path(), lock, Some(bootstrap), state);
        return;
    }
    // A `delete` that found the socket closed, or a `start`, holds the bootstrap lock and waits for the server lock: it
    // uses or removes what is left. When the two waited for each other, four of sixty `ctr run` on a busy machine took
    // a fifth of a second longer.
    let _ = remove_pod_files(address.path(), lock, None, state);
    // But a `delete` that found the socket open has released the lock and gone.
    if let Ok(bootstrap) = FileLock::acquire(&state.bootstrap_lock(), limit)
        && let Ok(Some(lock)) = FileLock::try_acquire(&state.server_lock())
    {
        let _ = remove_pod_files(address.path(), lock, Some(bootstrap), state);
    }
}

fn serve(
    flags: &Flags,
    inherited: InheritedDescriptors,
    state: &StateDir,
    log: Option<RawFd>,
) -> Result<Option<Past>, ServerError> {
    // The bundle of the group's first container may be removed before its last container ends.
    env::set_current_dir("/").map_err(ServerError::Setup)?;
    if let Err(error) = processes::disable_huge_pages() {
        tracing::warn!(%error, "cannot turn transparent huge pages off: the shim may use more memory");
    }
    if let Err(error) = processes::use_all_open_files() {
        tracing::warn!(%error, "cannot raise the limit of open files: it bounds how many containers the shim can serve");
    }
    // One thread: a pod has little work and much state (DESIGN §4). std already ignores SIGPIPE.
    let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(ServerError::Setup)?;
    let config = ServeConfig {
        log,
        namespace: flags.namespace.clone(),
        id: flags.id.clone(),
        containerd_ttrpc_address: Some(ttrpc_address(flags)),
        listener: inherited.listener,
        node_file: NODE_FILE.into(),
        draining_file: DRAINING_FILE.into(),
        state_directory: state.path().to_owned(),
        lock: inherited.lock,
    };
    let service = async {
        // Runs when the service first waits; from then on the service handles these signals.
        tokio::task::spawn_local(async { stop_signals().thread_unblock() });
        shim_service::serve(config).await
    };
    let all = LocalSet::new();
    let result = runtime.block_on(busy::measured(all.run_until(service)));
    let result = result.map_err(|error| ServerError::Service(error.to_string()));
    drop(all);
    // What still runs has no receiver for its result.
    runtime.shutdown_background();
    result
}

/// containerd's event socket: from the environment, or the default next to containerd's socket.
fn ttrpc_address(flags: &Flags) -> String {
    match env::var(TTRPC_ADDRESS) {
        Ok(address) if !address.is_empty() => address,
        _ => format!("{}.ttrpc", flags.address),
    }
}

/// A panic must not leave a half dead server: it is logged, and the process aborts. `delete` then ends the pod (N3).
fn log_panics() {
    panic::set_hook(Box::new(|panic| {
        tracing::error!(%panic, "the server panicked");
        std::process::abort();
    }));
}

fn no_path(address: &SocketAddr) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{address:?} is not the path of a socket"))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::thread;

    use super::*;

    const LIMIT: Duration = Duration::from_secs(20);

    /// The files of a pod, and the lock that its server holds.
    fn pod_in(directory: &Path) -> (SocketAddress, StateDir, FileLock) {
        let address = SocketAddress::at(&directory.join("socket")).unwrap();
        let state = StateDir::at(directory.join("namespace/pod"));
        let server = FileLock::try_acquire(&state.server_lock()).unwrap().unwrap();
        (address, state, server)
    }

    /// A `delete` comes between the closing of the socket and the server's end: each used to wait for the other's lock.
    #[test]
    fn an_ending_server_leaves_its_lock_to_the_one_that_waits_for_it() {
        let directory = tempfile::tempdir().unwrap();
        let (address, state, server) = pod_in(directory.path());
        let bootstrap = FileLock::try_acquire(&state.bootstrap_lock()).unwrap().unwrap();
        let (taken, is_taken) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| leave(&address, server, &state, LIMIT * 2));
            scope.spawn(|| {
                // As `delete` does.
                let server = FileLock::acquire(&state.server_lock(), LIMIT);
                let done =
                    server.map(|server| remove_pod_files(address.path(), server, Some(bootstrap), &state));
                taken.send(done.is_ok()).unwrap();
            });
            assert!(is_taken.recv().unwrap(), "the server keeps its lock and waits for the other");
        });
        assert!(!state.path().exists());
    }

    #[test]
    fn an_ending_server_removes_what_a_mere_lock_leaves() {
        let directory = tempfile::tempdir().unwrap();
        let (address, state, server) = pod_in(directory.path());
        let lock = FileLock::try_acquire(&state.bootstrap_lock()).unwrap().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| leave(&address, server, &state, LIMIT));
            drop(lock);
        });
        assert!(!state.path().exists());
    }
}
