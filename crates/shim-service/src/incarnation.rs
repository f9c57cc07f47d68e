//! Making a process: the create of a container, its re-creation in place, the start of an exec.
//!
//! Each function leaves nothing behind when it fails. They run as tasks of their own and hold nothing of the
//! owner's.

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use oci_runtime::cgroup::{Cgroup, OomWatch};
use oci_runtime::console::{Console, ConsoleSocket, TerminalSize};
use oci_runtime::mount;
use oci_runtime::reaper::ExitWatch;
use oci_runtime::runtime::{Container, CreateOptions, DeleteMode, Launched, RuntimeError};
use oci_runtime::stdio::{ChildStdio, ConsoleStreams, Stdio};
use pod_lifecycle::{Failure, RefusalKind};
use tracing::warn;

use crate::details::{CreateDetails, ExecDetails};
use crate::resources::Incarnation;

/// Where console sockets are made: short enough for a socket address, whatever the bundle's path.
const CONSOLE_DIRECTORY: &str = "/run/podshim";
/// The runtime has sent the terminal before it exits.
const CONSOLE_LIMIT: Duration = Duration::from_secs(10);
/// What a terminal's last output may take to be read before an incarnation is replaced.
const CONSOLE_DRAIN: Duration = Duration::from_secs(1);

/// A new process of a container.
pub(crate) struct NewIncarnation {
    pub(crate) incarnation: Incarnation,
    pub(crate) cgroup: Option<Rc<Cgroup>>,
    pub(crate) exit: ExitWatch,
    pub(crate) oom: Option<OomWatch>,
}

/// The streams one incarnation is started with.
pub(crate) struct IncarnationStreams {
    child: ChildStdio,
    console: Option<ConsoleStreams>,
}

impl IncarnationStreams {
    pub(crate) fn of(stdio: &Stdio) -> Result<Self, Failure> {
        let console = match stdio.mode() {
            oci_runtime::stdio::StreamMode::Terminal => Some(stdio.console_streams().map_err(failure)?),
            oci_runtime::stdio::StreamMode::Streams => None,
        };
        Ok(Self { child: stdio.child_stdio().map_err(failure)?, console })
    }
}

/// The first create (CONTRACT §8): stdio, rootfs, `runtime create`.
pub(crate) async fn create(
    runtime: Container,
    details: Rc<CreateDetails>,
) -> Result<(Stdio, NewIncarnation), Failure> {
    let mut stdio = open_stdio(&details).await?;
    let rootfs = runtime.bundle().rootfs();
    if !details.rootfs.is_empty() {
        mount::mount_rootfs(&rootfs, &details.rootfs).await.map_err(failure)?;
    }
    let created = match IncarnationStreams::of(&stdio) {
        Ok(streams) => incarnate(&runtime, &details, streams, None).await,
        Err(failure) => Err(failure),
    };
    match created {
        Ok(incarnation) => {
            // Not before: what a failing runtime writes is no output of the container.
            stdio.start_moving();
            Ok((stdio, incarnation))
        }
        Err(failure) => {
            unmount(&details, &rootfs).await;
            Err(failure)
        }
    }
}

/// The stdio of a container; waits for containerd's side of it.
pub(crate) async fn open_stdio(details: &CreateDetails) -> Result<Stdio, Failure> {
    Stdio::open(&details.streams.paths(), details.stream_owner()).await.map_err(failure)
}

/// R6: the same bundle, rootfs and stdio, a new process; limits and terminal size as they were.
pub(crate) async fn recreate(
    runtime: Container,
    details: Rc<CreateDetails>,
    streams: IncarnationStreams,
    before: Option<Incarnation>,
    update: Option<Rc<[u8]>>,
    size: Option<TerminalSize>,
) -> Result<NewIncarnation, Failure> {
    if let Some(mut before) = before
        && let Some(console) = before.console.take()
    {
        console.shutdown(CONSOLE_DRAIN).await;
    }
    runtime.delete(DeleteMode::Force).await.map_err(runtime_failure)?;
    let new = incarnate(&runtime, &details, streams, size).await?;
    if let Some(resources) = update
        && let Err(error) = runtime.update(&resources).await
    {
        // It still runs with the limits of its spec, which is better than not at all.
        warn!(container = runtime.id(), %error, "cannot apply the updated limits again");
    }
    Ok(new)
}

/// `runtime create` and what belongs to its result.
async fn incarnate(
    runtime: &Container,
    details: &CreateDetails,
    streams: IncarnationStreams,
    size: Option<TerminalSize>,
) -> Result<NewIncarnation, Failure> {
    let socket = console_socket(streams.console.is_some())?;
    let options = CreateOptions {
        console_socket: socket.as_ref().map(ConsoleSocket::path),
        root_switch: details.root_switch(),
        session_keyring: details.session_keyring(),
    };
    let Launched { process, exit, runtime_init } =
        runtime.create(streams.child, options).await.map_err(runtime_failure)?;
    let console = match console(socket, streams.console, size).await {
        Ok(console) => console,
        Err(failure) => {
            if let Err(error) = runtime.delete(DeleteMode::Force).await {
                warn!(container = runtime.id(), %error, "cannot remove a container without its terminal");
            }
            return Err(failure);
        }
    };
    // Gone already: there is nothing to count, and the exit is on its way. The look at the process comes last: its
    // pid may have become another's, whose cgroup must never be taken for this one's.
    let cgroup = Cgroup::of_pid(process.pid()).ok().filter(|_| process.is_running()).map(Rc::new);
    let oom = cgroup.as_deref().and_then(|cgroup| {
        let watch = OomWatch::new(cgroup);
        watch.inspect_err(|error| warn!(container = runtime.id(), %error, "OOM kills will not be told")).ok()
    });
    let incarnation = Incarnation { process: Rc::new(process), runtime_init, console };
    Ok(NewIncarnation { incarnation, cgroup, exit, oom })
}

/// A started exec.
pub(crate) struct NewExec {
    pub(crate) stdio: Stdio,
    pub(crate) console: Option<Console>,
    pub(crate) process: Rc<oci_runtime::process::Process>,
    pub(crate) exit: ExitWatch,
}

/// `runtime exec` with the streams of the request.
pub(crate) async fn start_exec(
    runtime: Container,
    container: Rc<CreateDetails>,
    exec_id: String,
    details: Rc<ExecDetails>,
    size: Option<TerminalSize>,
) -> Result<NewExec, Failure> {
    let mut stdio = Stdio::open(&details.streams.paths(), container.stream_owner()).await.map_err(failure)?;
    let streams = IncarnationStreams::of(&stdio)?;
    let socket = console_socket(streams.console.is_some())?;
    let launched = runtime
        .exec(&exec_id, &details.process, streams.child, socket.as_ref().map(ConsoleSocket::path))
        .await
        .map_err(runtime_failure)?;
    let console = match console(socket, streams.console, size).await {
        Ok(console) => console,
        Err(failure) => {
            if let Err(error) = launched.process.signal(oci_runtime::process::SignalNumber::KILL) {
                warn!(container = runtime.id(), exec = exec_id, %error, "cannot end an exec without its terminal");
            }
            return Err(failure);
        }
    };
    stdio.start_moving();
    Ok(NewExec { stdio, console, process: Rc::new(launched.process), exit: launched.exit })
}

fn console_socket(wanted: bool) -> Result<Option<ConsoleSocket>, Failure> {
    wanted.then(|| ConsoleSocket::bind(Path::new(CONSOLE_DIRECTORY))).transpose().map_err(failure)
}

async fn console(
    socket: Option<ConsoleSocket>,
    streams: Option<ConsoleStreams>,
    size: Option<TerminalSize>,
) -> Result<Option<Console>, Failure> {
    let (Some(socket), Some(streams)) = (socket, streams) else { return Ok(None) };
    let master = socket.receive(CONSOLE_LIMIT).await.map_err(failure)?;
    let console = Console::start(master, streams).map_err(failure)?;
    if let Some(size) = size {
        console.resize(size).map_err(failure)?;
    }
    Ok(Some(console))
}

/// Undoes the rootfs mounts; what cannot be undone is logged, for `delete` tries again.
pub(crate) async fn unmount(details: &CreateDetails, rootfs: &Path) {
    if details.rootfs.is_empty() {
        return;
    }
    if let Err(error) = mount::unmount_rootfs(rootfs).await {
        warn!(rootfs = %rootfs.display(), %error, "cannot unmount the rootfs");
    }
}

/// An error of this machine as the pod takes it.
pub(crate) fn failure(error: impl std::fmt::Display) -> Failure {
    Failure { message: error.to_string(), kind: RefusalKind::Internal }
}

/// An error of the OCI runtime, in its own words.
pub(crate) fn runtime_failure(error: RuntimeError) -> Failure {
    let kind = match &error {
        RuntimeError::TimedOut { .. } => RefusalKind::DeadlineExceeded,
        _ => RefusalKind::Internal,
    };
    Failure { message: error.to_string(), kind }
}
