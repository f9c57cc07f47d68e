//! Creates processes: the first of a container, the next one in place, the restored one, that of an exec.
//!
//! Owns the order of these steps, and that a step that fails leaves nothing behind. Runs in tasks: it may never hold or change
//! what is the owner's.

use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use cgroups::{Cgroup, Guard, KeptGroups, OomWatch};
use mounts::MountError;
use oci_runtime::runtime::{
    Container, CreateOptions, DeleteMode, GiveUp, GroupsLeft, Launched, RestoreOptions,
};
use pod_lifecycle::{Failure, RefusalKind};
use processes::reaper::Charge;
use streams::console::TerminalSize;
use streams::head::{Attempt, EndsOfTerminal, Streams, Terminal, TerminalSocket, Whose};
use streams::stdio::LoggerIdentity;
use tokio::sync::Notify;
use tracing::warn;

use crate::context::PodContext;
use crate::details::{CheckpointImage, CreateDetails, ExecDetails};
use crate::error::{failure, runtime_failure};
use crate::incarnation::{
    FailedCreate, Incarnation, IncarnationStreams, Legacy, LimitsAre, NewExec, NewIncarnation,
};

/// How long the terminal is waited for. The OCI runtime sends it before it exits.
const TERMINAL_LIMIT: Duration = Duration::from_secs(10);
/// How long a terminal's last output is read before its incarnation is replaced.
const TERMINAL_DRAIN: Duration = Duration::from_secs(1);

/// Creates the processes of one container and of its execs.
#[derive(Clone, Debug)]
pub(crate) struct Launcher {
    runtime: Container,
    details: Rc<CreateDetails>,
    context: PodContext,
    /// A caller deletes the container (F11).
    unwanted: Rc<Notify>,
}

/// What a container's process is created from.
#[derive(Clone, Copy)]
enum Source<'a> {
    Program,
    Checkpoint(&'a CheckpointImage),
}

/// What a process is created with.
struct Ready {
    attempt: Attempt,
    terminal: Option<EndsOfTerminal>,
    /// Where they are not its container's own.
    streams: Option<Streams>,
}

fn given_up(id: &str) -> Failure {
    let message = format!("container {id} was deleted before containerd had opened its side of the output");
    Failure { message, kind: RefusalKind::FailedPrecondition }
}

impl Launcher {
    pub(crate) fn new(
        runtime: Container,
        details: Rc<CreateDetails>,
        context: PodContext,
        unwanted: Rc<Notify>,
    ) -> Self {
        Self { runtime, details, context, unwanted }
    }

    /// Counts the OCI runtime's processor time as `charge`.
    pub(crate) fn charged_to(mut self, charge: Charge) -> Self {
        self.runtime = self.runtime.charged_to(charge);
        self
    }

    /// Its calls of the OCI runtime end when they are given up (T10).
    pub(crate) fn until(mut self, give_up: GiveUp) -> Self {
        self.runtime = self.runtime.until(give_up);
        self
    }

    /// The first create (CONTRACT §8): stdio, rootfs, `runtime create`.
    pub(crate) async fn create(&self) -> Result<(Streams, NewIncarnation), FailedCreate> {
        let streams = self.prepare().await?;
        match self.launch(Source::Program, IncarnationStreams::of(&streams), None).await {
            Ok(incarnation) => Ok((streams, incarnation)),
            Err(failure) => {
                // If it fails, that is in the log; the caller gets the create's error.
                let _ = unmount(&self.details, &self.runtime.bundle().rootfs()).await;
                Err(FailedCreate { failure, fifos: streams.into_unused_fifos() })
            }
        }
    }

    /// The first create without its process: stdio and rootfs.
    pub(crate) async fn prepare(&self) -> Result<Streams, FailedCreate> {
        let mut streams = self.connected_streams().await?;
        let prepared = async {
            self.start_logger(&mut streams, self.runtime.id()).await?;
            self.mount_rootfs().await
        };
        match prepared.await {
            Ok(()) => Ok(streams),
            Err(failure) => Err(FailedCreate { failure, fifos: streams.into_unused_fifos() }),
        }
    }

    /// Opens the stdio of a container that has no process yet, and waits for containerd to open its side.
    ///
    /// containerd's shim waits when the process exists. If containerd is killed during the create, its readers are gone by then,
    /// and the process would wait for new ones (N1, trap 15). The next containerd deletes such a container before it serves, and opens
    /// no stream until then (F11).
    pub(crate) async fn connected_streams(&self) -> Result<Streams, Failure> {
        let (paths, owner) = (self.details.streams.paths(), self.details.stream_owner());
        let whose = Whose::Container(self.runtime.id());
        let streams = Streams::open(&self.context.hands, whose, &paths, owner).await.map_err(failure)?;
        tokio::select! {
            biased;
            connected = streams.connect() => connected.map_err(failure)?,
            () = self.unwanted.notified() => return Err(given_up(self.runtime.id())),
        }
        Ok(streams)
    }

    /// `id` is the name that the logging program gets: for an exec the exec's, as in containerd's shim (CONTRACT §7).
    async fn start_logger(&self, streams: &mut Streams, id: &str) -> Result<(), Failure> {
        let identity = LoggerIdentity { id, namespace: &self.context.namespace };
        streams.start_logger(self.runtime.reaper(), identity).await.map_err(failure)
    }

    /// R6: a new process with the same bundle, rootfs, stdio and control groups, and with the last limits.
    pub(crate) async fn recreate(
        &self,
        streams: IncarnationStreams,
        before: Option<Incarnation>,
        legacy: Legacy,
    ) -> Result<NewIncarnation, Failure> {
        if let Some(mut before) = before
            && let Some(terminal) = before.take_terminal()
        {
            terminal.shutdown(TERMINAL_DRAIN).await;
        }
        let Legacy { groups, limits, limits_are } = legacy;
        let kept = self.delete_for_the_next(groups).await?;
        let mut new = self.launch(Source::Program, streams, None).await?;
        // The groups have a caller's limits already, and what was written into them later: that wins. The runtime gets the limits
        // all the same, for its own record of the container.
        match (kept, limits_are) {
            (Some(kept), LimitsAre::Written) => {
                self.apply_limits(&mut new, limits).await;
                kept.restore().await;
            }
            (Some(kept), LimitsAre::Waiting) => {
                kept.restore().await;
                self.apply_limits(&mut new, limits).await;
            }
            (None, _) => self.apply_limits(&mut new, limits).await,
        }
        Ok(new)
    }

    /// Deletes the container from its runtime, which has to make it once more, and keeps its groups where that can be done.
    async fn delete_for_the_next(
        &self,
        groups: Option<(String, Rc<Cgroup>)>,
    ) -> Result<Option<KeptGroups>, Failure> {
        let kept = match groups {
            Some((path, cgroup)) => KeptGroups::of(&path, &cgroup).await,
            None => None,
        };
        let Some(kept) = kept else {
            self.runtime.delete(DeleteMode::Ended).await.map_err(runtime_failure)?;
            return Ok(None);
        };
        let left = self.runtime.delete_all_but(&kept).await.map_err(runtime_failure)?;
        Ok((left == GroupsLeft::All).then_some(kept))
    }

    /// R14: the first process of a container whose stdio is open already.
    pub(crate) async fn create_late(&self, streams: IncarnationStreams) -> Result<NewIncarnation, Failure> {
        self.mount_rootfs().await?;
        let new = self.launch(Source::Program, streams, None).await;
        if new.is_err() {
            // If it fails, that is in the log; the next attempt mounts again.
            let _ = unmount(&self.details, &self.runtime.bundle().rootfs()).await;
        }
        new
    }

    async fn mount_rootfs(&self) -> Result<(), Failure> {
        if self.details.rootfs.is_empty() || !self.runtime.runs_the_pods_programs() {
            return Ok(());
        }
        let rootfs = self.runtime.bundle().rootfs();
        mounts::mount_rootfs(&rootfs, &self.details.rootfs).await.map_err(failure)
    }

    /// The Start of a container that is restored from a checkpoint: `runtime restore`.
    pub(crate) async fn restore(
        &self,
        streams: IncarnationStreams,
        limits: Option<Rc<[u8]>>,
        size: Option<TerminalSize>,
    ) -> Result<NewIncarnation, Failure> {
        let Some(image) = &self.details.checkpoint else {
            return Err(failure("it has no checkpoint to be restored from"));
        };
        let mut new = self.launch(Source::Checkpoint(image), streams, size).await?;
        self.apply_limits(&mut new, limits).await;
        Ok(new)
    }

    /// Applies the limits of the last Update to a newer process.
    pub(crate) async fn apply_limits(&self, new: &mut NewIncarnation, limits: Option<Rc<[u8]>>) {
        new.limits.clone_from(&limits);
        let Some(limits) = limits else { return };
        if let Err(error) = self.runtime.update(&limits).await {
            // It runs with the limits of its spec, which is better than not at all.
            warn!(container = self.runtime.id(), %error, "cannot apply the updated limits: the restarted container has those of its spec");
        }
    }

    /// Creates a process of the container, with its terminal, its cgroup and the watch for OOM kills.
    async fn launch(
        &self,
        source: Source<'_>,
        streams: IncarnationStreams,
        size: Option<TerminalSize>,
    ) -> Result<NewIncarnation, Failure> {
        let (runtime, details) = (&self.runtime, &self.details);
        let Ready { attempt: Attempt { child, held_back }, terminal, streams } = self.ready(streams).await?;
        let socket = self.terminal_socket(terminal.as_ref()).await?;
        let create = CreateOptions {
            console_socket: socket.as_ref().map(TerminalSocket::path),
            root_switch: details.root_switch(),
            session_keyring: details.session_keyring(),
        };
        let launched = match source {
            Source::Program => runtime.create(child, create).await,
            Source::Checkpoint(image) => {
                let options = RestoreOptions {
                    image_path: &image.path,
                    parent_path: image.parent.as_deref(),
                    work_path: details.options.criu_work_path.as_deref(),
                    criu_path: details.options.criu_path.as_deref(),
                    create,
                };
                runtime.restore(child, options).await
            }
        };
        let Launched { process, exit, runtime_init } = launched.map_err(runtime_failure)?;
        let terminal = match attach(socket, terminal, size).await {
            Ok(terminal) => terminal,
            Err(failure) => {
                if let Err(error) = runtime.delete(DeleteMode::Force).await {
                    warn!(container = runtime.id(), %error, "the streams of a container failed, and the container cannot be removed");
                }
                return Err(failure);
            }
        };
        // A process that has exited already has no cgroup to read; its exit is reported soon. Ask last whether it runs: the
        // kernel may have given its pid to another process, whose cgroup must never be taken for this one's.
        let cgroup = Cgroup::of_pid(process.pid()).ok().filter(|_| process.is_running()).map(Rc::new);
        let oom = cgroup.as_deref().and_then(|cgroup| {
            let watch = OomWatch::new(cgroup, process.pid());
            watch
                .inspect_err(
                    |error| warn!(container = runtime.id(), %error, "OOM kills will not be reported"),
                )
                .ok()
        });
        // No program that a pod brings runs in podshim's own sandbox, nor sees its groups.
        let guarded = cgroup.as_deref().filter(|_| runtime.runs_the_pods_programs());
        let guard = guarded.map(Guard::of);
        let incarnation = Incarnation::new(process, runtime_init, terminal);
        Ok(NewIncarnation { incarnation, held_back, streams, cgroup, guard, exit, oom, limits: None })
    }

    /// Streams for a process. While another container holds the hand that has its container's, they are opened once more, on a hand
    /// that answers (H1): what the process before has written comes from the first ones.
    async fn ready(&self, streams: IncarnationStreams) -> Result<Ready, Failure> {
        let IncarnationStreams { attempt, terminal } = streams;
        if !self.details.streams.paths().can_be_opened_twice() {
            let attempt = attempt.ready().await.map_err(failure)?;
            return Ok(Ready { attempt, terminal, streams: None });
        }
        match attempt.ready_unless_away().await {
            Ok(attempt) => Ok(Ready { attempt, terminal, streams: None }),
            Err(error) if error.is_of_a_hand_that_is_away() => {
                warn!(
                    container = self.runtime.id(),
                    "its streams are opened once more: the thread that has them is away"
                );
                let streams = self.connected_streams().await?;
                let attempt = streams.attempt().ready().await.map_err(failure)?;
                Ok(Ready { attempt, terminal: streams.ends_of_terminal(), streams: Some(streams) })
            }
            Err(error) => Err(failure(error)),
        }
    }

    /// `runtime exec` with the streams of the request.
    pub(crate) async fn start_exec(
        &self,
        exec_id: String,
        details: Rc<ExecDetails>,
    ) -> Result<NewExec, Failure> {
        let runtime = &self.runtime;
        let paths = details.streams.paths();
        let owner = self.details.stream_owner();
        let whose = Whose::ExecsOf(runtime.id());
        let mut streams = Streams::open(&self.context.hands, whose, &paths, owner).await.map_err(failure)?;
        self.start_logger(&mut streams, &exec_id).await?;
        let ends = streams.ends_of_terminal();
        let socket = self.terminal_socket(ends.as_ref()).await?;
        let Attempt { child, held_back } = streams.attempt().ready().await.map_err(failure)?;
        let path = socket.as_ref().map(TerminalSocket::path);
        let launched =
            runtime.exec(&exec_id, &details.process, child, path).await.map_err(runtime_failure)?;
        // Only now: an exec that fails must leave the fifos to the next one.
        let attached = async {
            streams.connect().await.map_err(failure)?;
            attach(socket, ends, None).await
        };
        let terminal = match attached.await {
            Ok(terminal) => terminal,
            Err(failure) => {
                if let Err(error) = launched.process.signal(processes::SignalNumber::KILL) {
                    warn!(container = runtime.id(), exec = exec_id, %error, "the streams of an exec failed, and its process cannot be killed");
                }
                return Err(failure);
            }
        };
        streams.accept(held_back);
        Ok(NewExec { streams, terminal, process: Rc::new(launched.process), exit: launched.exit })
    }

    async fn terminal_socket(
        &self,
        ends: Option<&EndsOfTerminal>,
    ) -> Result<Option<TerminalSocket>, Failure> {
        let Some(ends) = ends else { return Ok(None) };
        TerminalSocket::bind(ends, &self.context.console_directory).await.map(Some).map_err(failure)
    }
}

/// Connects the terminal of a new process with containerd's side; `None` if it has no terminal.
async fn attach(
    socket: Option<TerminalSocket>,
    ends: Option<EndsOfTerminal>,
    size: Option<TerminalSize>,
) -> Result<Option<Terminal>, Failure> {
    let (Some(socket), Some(ends)) = (socket, ends) else { return Ok(None) };
    socket.attach(&ends, size, TERMINAL_LIMIT).await.map(Some).map_err(failure)
}

/// Unmounts the rootfs. A failure is logged; `delete` tries again.
pub(crate) async fn unmount(details: &CreateDetails, rootfs: &Path) -> Result<(), MountError> {
    if details.rootfs.is_empty() {
        return Ok(());
    }
    let warn = |error: &MountError| warn!(rootfs = %rootfs.display(), %error, "cannot unmount the rootfs");
    mounts::unmount_rootfs(rootfs).await.inspect_err(warn)
}
