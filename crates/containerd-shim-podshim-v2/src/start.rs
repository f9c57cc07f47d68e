//! `start`: the address of the pod's shim, and the shim itself if the pod has none (CONTRACT §1, §2).
//!
//! Owns the decision which shim serves a container, and the making of a new one without races against other `start`s
//! and `delete`s of the pod. Only the caller prints: containerd mixes stderr into the address (trap 1).

use std::collections::BTreeMap;
use std::env;
use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::time::Duration;

use containerd_shim::Flags;
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use node_state::entry::Entry;
use node_state::paths::STATE_ROOT;
use node_state::places::place;
use node_state::totals::add_to_totals;
use oci_runtime::bundle::{Bundle, BundleError};
use own_processes::Pins;
use shim_service::cri::{SANDBOX_NAME, SANDBOX_NAMESPACE};
use shim_service::options::OptionsError;
use thiserror::Error;

use crate::args::log_level;
use crate::lock::FileLock;
use crate::paths::{SocketAddress, StateDir};
use crate::placement::{self, PlacementError};
use crate::server_process::{self, Invocation, ServerProcess};
use crate::stdin::StartInput;

mod grouping;

pub use grouping::{Grouping, group_of};

/// Another `start` of the pod takes milliseconds; a `delete` that ends a dead shim's pod takes four seconds.
const BOOTSTRAP_LIMIT: Duration = Duration::from_secs(10);
/// A shim that has closed its socket is about to end.
const OLD_SHIM_LIMIT: Duration = Duration::from_secs(5);

/// Why a container gets no shim.
#[derive(Debug, Error)]
pub enum StartError {
    /// The bundle's spec exists and cannot be parsed.
    #[error("{0}")]
    Spec(#[from] BundleError),
    /// A container of a CRI pod without its shim (N3).
    #[error(
        "the pod's shim is gone: container {container} belongs to pod {pod}, which no shim serves, and a new \
         one would not know the pod's plan; stop and remove the pod so that it is recreated"
    )]
    PodGone {
        /// The container.
        container: String,
        /// Its sandbox.
        pod: String,
    },
    /// A shim of this pod is alive and does not answer.
    #[error("the pod's old shim (pid {pid}) is alive but does not listen on {address}: end it and try again")]
    NotListening {
        /// Its pid, if it is known.
        pid: String,
        /// Where it should listen.
        address: SocketAddress,
    },
    /// A step of making the shim failed.
    #[error("cannot start the pod's shim: {step}: {source}")]
    Step {
        /// What was attempted, with its path.
        step: String,
        /// The system's answer.
        source: io::Error,
    },
    /// The options of a sandbox cannot be kept in its bundle.
    #[error("cannot start the pod's shim: {0}")]
    Options(OptionsError),
    /// The shim cannot be placed where the options say.
    #[error("cannot start the pod's shim: {0}")]
    Placement(#[from] PlacementError),
}

fn step(step: impl Into<String>) -> impl FnOnce(io::Error) -> StartError {
    let step = step.into();
    move |source| StartError::Step { step, source }
}

/// The shim of a container.
#[derive(Debug)]
pub struct Started {
    /// The answer to containerd.
    pub address: SocketAddress,
    /// The server, if this call made it.
    pub server: Option<NewServer>,
}

/// A server that can still be undone, until containerd has its address.
#[derive(Debug)]
pub struct NewServer {
    process: ServerProcess,
    right: ServerRight,
}

impl NewServer {
    /// Ends the server and removes what was made for it.
    pub fn take_back(self) {
        self.process.kill();
        self.right.abandon();
    }
}

/// Finds or makes the shim of the container whose bundle is the working directory.
///
/// # Errors
///
/// [`StartError`]; then nothing that this call made is left.
pub fn run(flags: &Flags) -> Result<Started, StartError> {
    let bundle = env::current_dir().map_err(step("working directory"))?;
    let input = StartInput::from_stdin(flags);
    let annotations = annotations_of(&Bundle::new(&bundle))?;
    // No request of the Sandbox API has them, and its containers may come without (CONTRACT §1.7).
    if annotations.is_none() {
        input.options.save(&Bundle::new(&bundle)).map_err(StartError::Options)?;
    }
    let annotations = annotations.unwrap_or_default();
    let group = group_of(&annotations, &flags.id);
    let address = SocketAddress::of_pod(&input.containerd, group);
    let request = Request { flags, input: &input, bundle: &bundle, annotations: &annotations, group };
    let started = request.find_or_make(address)?;
    if let Err(source) = started.address.write_to(&bundle) {
        if let Some(server) = started.server {
            server.take_back();
        }
        return Err(step(format!("address file in {}", bundle.display()))(source));
    }
    Ok(started)
}

/// The annotations of a bundle's spec. A sandbox of `sandboxer = "shim"` has none.
fn annotations_of(bundle: &Bundle) -> Result<Option<BTreeMap<String, String>>, BundleError> {
    match bundle.read_spec() {
        Ok(spec) => Ok(Some(spec.annotations)),
        Err(BundleError::Read { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a shim listens at an address.
///
/// # Errors
///
/// [`StartError::Step`] if the address is not a socket's, or access to it is denied.
pub fn liveness(address: &SocketAddress) -> Result<Liveness, StartError> {
    let step = || step(format!("socket {}", address.path().display()));
    let peer = UnixAddr::new(address.path()).map_err(|errno| step()(errno.into()))?;
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket =
        socket(AddressFamily::Unix, SockType::Stream, flags, None).map_err(|errno| step()(errno.into()))?;
    match connect(std::os::fd::AsRawFd::as_raw_fd(&socket), &peer) {
        // EAGAIN: the backlog is full, so a process listens, if slowly.
        Ok(()) | Err(Errno::EAGAIN) => Ok(Liveness::Listening),
        Err(Errno::ENOENT | Errno::ECONNREFUSED | Errno::ENOTDIR) => Ok(Liveness::Gone),
        Err(errno) => Err(step()(errno.into())),
    }
}

/// What exists at a shim's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Liveness {
    /// A process that listens.
    Listening,
    /// Nothing, or the socket of a process that has ended.
    Gone,
}

/// One `start`, with all of its parsed input.
struct Request<'a> {
    flags: &'a Flags,
    input: &'a StartInput,
    bundle: &'a Path,
    annotations: &'a BTreeMap<String, String>,
    group: &'a str,
}

impl Request<'_> {
    fn find_or_make(&self, address: SocketAddress) -> Result<Started, StartError> {
        // The common case of a pod's second container costs one connect and no fork.
        if liveness(&address)? == Liveness::Listening {
            return Ok(Started { address, server: None });
        }
        let state = StateDir::of_pod(&self.flags.namespace, &address);
        let bootstrap = FileLock::acquire(&state.bootstrap_lock(), BOOTSTRAP_LIMIT)
            .map_err(step("lock of the pod's state"))?;
        // The `start` that held the lock before may have made the server.
        if liveness(&address)? == Liveness::Listening {
            return Ok(Started { address, server: None });
        }
        let right = match self.claim(&address, &state) {
            Ok(server) => ServerRight { address: address.clone(), state, server, bootstrap },
            Err(error) => {
                // The socket and the server lock are not removed: they may belong to another server.
                bootstrap.remove();
                state.remove();
                return Err(error);
            }
        };
        match self.make_server(&address, &right.server, &right.state) {
            Ok(process) => Ok(Started { address, server: Some(NewServer { process, right }) }),
            Err(error) => {
                right.abandon();
                Err(error)
            }
        }
    }

    /// Takes the new server's lock, and so makes sure that no other shim serves the pod.
    fn claim(&self, address: &SocketAddress, state: &StateDir) -> Result<FileLock, StartError> {
        if let Grouping::PodMember { pod } = Grouping::of(self.annotations) {
            return Err(StartError::PodGone { container: self.flags.id.clone(), pod: pod.to_owned() });
        }
        let path = state.server_lock();
        FileLock::acquire(&path, OLD_SHIM_LIMIT).map_err(|source| match source.kind() {
            io::ErrorKind::TimedOut => StartError::NotListening {
                pid: fs::read_to_string(&path).map_or_else(|_| "unknown".into(), |pid| pid.trim().to_owned()),
                address: address.clone(),
            },
            _ => step("lock of the pod's server")(source),
        })
    }

    fn make_server(
        &self,
        address: &SocketAddress,
        lock: &FileLock,
        state: &StateDir,
    ) -> Result<ServerProcess, StartError> {
        let listener = listen(address.path())?;
        // Of a killed shim that no `delete` has cleaned up after. Without its counts the pod runs all the same.
        let _ = add_to_totals(Path::new(STATE_ROOT), state.path());
        // Set before the fork and inherited by the server: a failure leaves nothing to undo in a running server.
        if let Some(cgroup) = &self.input.options.shim_cgroup {
            placement::enter_cgroup(cgroup)?;
        }
        placement::adjust_oom_score();
        placement::separate_core()?;
        let process = server_process::spawn(&Invocation {
            namespace: &self.flags.namespace,
            group: self.group,
            daemon: &self.flags.address,
            ttrpc_address: Some(self.input.containerd.ttrpc_address.as_str())
                .filter(|address| !address.is_empty()),
            log_level: log_level(self.input.containerd.debug),
            bundle: self.bundle,
            listener: &listener,
            lock: lock.file(),
        })
        .map_err(step("server process"))?;
        // Used by the message about a shim that does not listen, and by podshim ps.
        let left =
            record_pid(lock.file(), process.pid()).and_then(|()| self.entry(address).write_to(state.path()));
        if let Err(source) = left {
            process.kill();
            return Err(step("state of the pod's server")(source));
        }
        Ok(process)
    }

    /// The entry by which `podshim` finds the shim, and which describes the pod when the shim is dead.
    fn entry(&self, address: &SocketAddress) -> Entry {
        let annotations = self.annotations.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let annotation = |key: &str| self.annotations.get(key).cloned().unwrap_or_default();
        let pod_namespace = annotation(SANDBOX_NAMESPACE);
        Entry {
            version: control_api::VERSION,
            id: self.group.to_owned(),
            namespace: self.flags.namespace.clone(),
            socket: address.path().to_owned(),
            pod_name: annotation(SANDBOX_NAME),
            counted_as: Some(place(Path::new(STATE_ROOT), &pod_namespace)),
            pod_namespace,
            drain_priority: pod_spec::drain_priority(annotations),
            counts: None,
        }
    }
}

fn record_pid(mut file: &fs::File, pid: u32) -> io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{pid}")
}

/// Listens at a path that belongs to the caller: an existing file there is a dead shim's.
fn listen(path: &Path) -> Result<UnixListener, StartError> {
    let failed = || step(format!("socket {}", path.display()));
    if let Some(dir) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(failed())?;
    }
    match fs::remove_file(path) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => return Err(failed()(source)),
        _ => {}
    }
    let listener = UnixListener::bind(path).map_err(failed())?;
    // Only root may enter the directory anyway; the socket's mode repeats it.
    fs::set_permissions(path, Permissions::from_mode(0o600)).map_err(failed())?;
    Ok(listener)
}

/// The right to make the pod's server. Other `start`s wait until it is dropped: by then containerd has got the address,
/// or everything has been undone.
#[derive(Debug)]
struct ServerRight {
    address: SocketAddress,
    state: StateDir,
    server: FileLock,
    bootstrap: FileLock,
}

impl ServerRight {
    /// Removes the socket and the state.
    fn abandon(self) {
        // Only a server mounts anything there, and there was none.
        let _ = remove_pod_files(self.address.path(), self.server, Some(self.bootstrap), &self.state);
    }
}

/// Removes the files of a pod's server. The caller holds its lock, so the socket belongs to no other server.
///
/// # Errors
/// The mounts of a sandbox of the Sandbox API are still there; everything else is removed.
pub fn remove_pod_files(
    socket: &Path,
    server: FileLock,
    bootstrap: Option<FileLock>,
    state: &StateDir,
) -> io::Result<()> {
    let _ = fs::remove_file(socket);
    // A server that was killed during the handover of a terminal leaves it.
    let _ = fs::remove_dir_all(shim_service::console_directory(socket));
    // Only with the bootstrap lock: otherwise a `start` that waits for the server's lock would get one on a removed
    // file.
    let Some(bootstrap) = bootstrap else { return Ok(()) };
    // A server that was killed leaves the mounts of a sandbox of the Sandbox API. An ending one has removed them.
    let unmounted = Pins::remove(&shim_service::sandbox_directory(state.path()));
    Entry::remove_from(state.path());
    server.remove();
    bootstrap.remove();
    state.remove();
    unmounted
}
