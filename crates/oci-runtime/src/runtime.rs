//! Drives an OCI runtime (runc, crun) through its command line.
//!
//! Owns the arguments and the time limit of each call, and turns a failed call into a message for people. Keeps no
//! container state: the runtime and `pod-lifecycle` do that.

use std::{
    fs, io,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
    rc::Rc,
    time::Duration,
};

use serde::Deserialize;
use tokio::time::Instant;
use tracing::warn;

use crate::{
    bundle::{self, Bundle, BundleError},
    cgroup::{Cgroup, FreezeState},
    process::{ExecutableIdentity, Process},
    reaper::{Charge, Child, Exit, ExitWatch, Reaper, Ticket},
    stdio::ChildStdio,
};

mod checkpoint;
mod command;
mod delete;
mod error;
mod features;
#[cfg(test)]
mod tests;
mod undo;

pub use checkpoint::{AfterCheckpoint, CheckpointOptions, RestoreOptions};
#[cfg(any(test, fuzzing))]
pub(crate) use command::last_error_in;
use command::{Arguments, Captured, LogPosition, Streams, TemporaryFile};
pub use delete::DeleteMode;
pub use error::{Operation, RuntimeError};
pub use features::features;
use undo::DEATH_LIMIT;

/// How often podshim checks during an exec whether the container has ended. The container's exit is reported after
/// those of all its execs and hooks, so an exec whose runtime hangs must not delay it for the exec's whole time limit
/// (H3, T6, trap 7).
const INIT_POLL: Duration = Duration::from_millis(500);

/// Variables that containerd's systemd unit (`Type=notify`) sets and that every shim inherits.
///
/// With NOTIFY_SOCKET, runc waits in `start` until the container sends READY=1; with LISTEN_FDS, it passes on
/// descriptors that do not exist.
const SERVICE_MANAGER_VARIABLES: [&str; 4] = ["NOTIFY_SOCKET", "LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"];

/// Which program manages the container's cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CgroupDriver {
    /// The runtime writes the cgroup files itself.
    #[default]
    Cgroupfs,
    /// The runtime asks systemd.
    Systemd,
}

/// How the container's root becomes `/` (option NoPivotRoot).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RootSwitch {
    /// `pivot_root(2)`.
    #[default]
    PivotRoot,
    /// `MS_MOVE` and chroot, for a root on a ramdisk.
    NoPivotRoot,
}

/// Whether the container gets a session keyring of its own (option NoNewKeyring).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SessionKeyring {
    /// A new one.
    #[default]
    New,
    /// The shim's own.
    Inherited,
}

/// Settings of a `create`, apart from the bundle.
#[derive(Debug, Clone, Copy, Default)]
pub struct CreateOptions<'a> {
    /// The socket that receives the pty master, for a process with a terminal.
    pub console_socket: Option<&'a Path>,
    /// How the root is switched.
    pub root_switch: RootSwitch,
    /// Which session keyring is used.
    pub session_keyring: SessionKeyring,
}

/// A process that the runtime made for podshim and that the reaper adopted.
#[derive(Debug)]
pub struct Launched {
    /// The process.
    pub process: Process,
    /// Its exit, even if it has ended already.
    pub exit: ExitWatch,
    /// What the process executes before its own program (rule U1); `None` if it has ended already. Only valid after
    /// `create`: an exec does not wait, and may run its own program by now.
    pub runtime_init: Option<ExecutableIdentity>,
}

/// Status of a container as its runtime sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RuntimeStatus {
    /// `create` is at work.
    Creating,
    /// Created, not started.
    Created,
    /// The user program runs.
    Running,
    /// Frozen.
    Paused,
    /// Its init has ended.
    Stopped,
}

/// Answer of the runtime's `state`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct RuntimeState {
    /// Status.
    pub status: RuntimeStatus,
    /// Pid of init; 0 when stopped.
    #[serde(default)]
    pub pid: i32,
}

/// An OCI runtime binary with its settings.
#[derive(Debug, Clone)]
pub struct Runtime {
    reaper: Reaper,
    binary: PathBuf,
    root: PathBuf,
    cgroup_driver: CgroupDriver,
    criu: Option<PathBuf>,
}

impl Runtime {
    /// Makes a runtime that is called as `binary`, which is looked up in PATH unless it contains a slash. Its state is
    /// in `root`.
    ///
    /// `root` includes containerd's namespace: `/run/containerd/runc/<namespace>` (CONTRACT §8).
    pub fn new(
        reaper: Reaper,
        binary: impl Into<PathBuf>,
        root: impl Into<PathBuf>,
        cgroup_driver: CgroupDriver,
    ) -> Self {
        Self { reaper, binary: binary.into(), root: root.into(), cgroup_driver, criu: None }
    }

    /// The same runtime with the path of `criu`. Only runc before 1.2 needs it, for a criu outside of PATH.
    pub fn with_criu(self, criu: Option<PathBuf>) -> Self {
        Self { criu, ..self }
    }

    /// The binary.
    pub fn binary(&self) -> &Path {
        &self.binary
    }

    /// A handle for one container of this runtime. The container need not exist yet.
    pub fn container(self: &Rc<Self>, id: impl Into<String>, bundle: Bundle) -> Container {
        Container { runtime: self.clone(), id: id.into().into(), bundle: Rc::new(bundle) }
    }
}

/// One container of a [`Runtime`]. Clones are cheap and name the same container.
///
/// No call is undone by dropping its future: the runtime goes on working, ends by itself, and its time limit no longer
/// applies. Run the calls with `spawn_local`.
#[derive(Debug, Clone)]
pub struct Container {
    runtime: Rc<Runtime>,
    id: Rc<str>,
    bundle: Rc<Bundle>,
}

impl Container {
    /// The container id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The bundle.
    pub fn bundle(&self) -> &Bundle {
        &self.bundle
    }

    /// A handle whose calls are all charged to `charge`.
    #[must_use]
    pub fn charged_to(&self, charge: Charge) -> Self {
        let reaper = self.runtime.reaper.charged_to(charge);
        let runtime = Runtime { reaper, ..Runtime::clone(&self.runtime) };
        Self { runtime: Rc::new(runtime), ..self.clone() }
    }

    /// The reaper that knows this container's processes.
    pub fn reaper(&self) -> &Reaper {
        &self.runtime.reaper
    }

    /// `create`: leaves the runtime's init waiting for [`Self::start`], with `stdio` as its streams.
    ///
    /// After a failure nothing of the container is left: podshim deletes what the runtime made half way.
    pub async fn create(
        &self,
        stdio: ChildStdio,
        options: CreateOptions<'_>,
    ) -> Result<Launched, RuntimeError> {
        let pid_file = self.bundle.init_pid_path();
        self.remove_stale(Operation::Create, &pid_file)?;
        let mut arguments = Arguments::new("create");
        arguments.option("--bundle", self.bundle.path());
        arguments.option("--pid-file", &pid_file);
        if let Some(socket) = options.console_socket {
            arguments.option("--console-socket", socket);
        }
        if options.root_switch == RootSwitch::NoPivotRoot {
            arguments.push("--no-pivot");
        }
        if options.session_keyring == SessionKeyring::Inherited {
            arguments.push("--no-new-keyring");
        }
        arguments.push(&*self.id);
        let launched = self.launch(Operation::Create, arguments, Streams::Container(stdio), &pid_file).await;
        if let Err(error) = &launched {
            self.undo_create(error, &pid_file).await;
        }
        launched
    }

    /// `start`: makes a created container run its program.
    pub async fn start(&self) -> Result<(), RuntimeError> {
        let mut arguments = Arguments::new("start");
        arguments.push(&*self.id);
        self.run(Operation::Start, arguments, None).await.map(drop)
    }

    /// `exec --detach`: runs another process in the container. `process` is an OCI process as JSON.
    ///
    /// Also works in a created container (XP-1). The returned process may have ended already.
    pub async fn exec(
        &self,
        exec_id: &str,
        process: &[u8],
        stdio: ChildStdio,
        console_socket: Option<&Path>,
    ) -> Result<Launched, RuntimeError> {
        let bundle_error =
            |source| RuntimeError::Bundle { operation: Operation::Exec, id: self.id.to_string(), source };
        let pid_file = self.bundle.exec_pid_path(exec_id).map_err(bundle_error)?;
        let process_file = self.bundle.exec_process_path(exec_id).map_err(bundle_error)?;
        self.remove_stale(Operation::Exec, &pid_file)?;
        let process_file = TemporaryFile::create(process_file, process)
            .map_err(|(path, source)| bundle_error(BundleError::Write { path, source }))?;
        let mut arguments = Arguments::new("exec");
        arguments.option("--process", &process_file.path);
        arguments.push("--detach");
        arguments.option("--pid-file", &pid_file);
        if let Some(socket) = console_socket {
            arguments.option("--console-socket", socket);
        }
        arguments.push(&*self.id);
        let launched = self.launch(Operation::Exec, arguments, Streams::Container(stdio), &pid_file).await;
        // Adopted: the file is used up, and podshim alone reads it. init.pid stays for `delete`.
        let _ = fs::remove_file(&pid_file);
        launched
    }

    /// `pause`: freezes every process of the container. After a failure they run, as far as `cgroup` shows.
    pub async fn pause(&self, cgroup: Option<&Cgroup>) -> Result<(), RuntimeError> {
        let before = cgroup.map(Cgroup::freeze_state);
        let mut arguments = Arguments::new("pause");
        arguments.push(&*self.id);
        let paused = self.run(Operation::Pause, arguments, None).await.map(drop);
        if paused.is_err() {
            self.thaw_again(cgroup, before);
        }
        paused
    }

    /// `resume`: thaws a paused container. If the runtime fails to, podshim thaws `cgroup` itself (K17).
    pub async fn resume(&self, cgroup: Option<&Cgroup>) -> Result<(), RuntimeError> {
        let before = cgroup.map(Cgroup::freeze_state);
        let mut arguments = Arguments::new("resume");
        arguments.push(&*self.id);
        let resumed = self.run(Operation::Resume, arguments, None).await.map(drop);
        match (resumed, cgroup, before) {
            (Err(error), Some(cgroup), Some(FreezeState::Frozen | FreezeState::Freezing)) => {
                warn!(container = %self.id, %error, "the OCI runtime failed to resume the container: the shim thaws its cgroup itself");
                if self.thaw(cgroup) == FreezeState::Thawed { Ok(()) } else { Err(error) }
            }
            (resumed, ..) => resumed,
        }
    }

    /// `update`: applies an OCI `LinuxResources` document given as JSON.
    pub async fn update(&self, resources: &[u8]) -> Result<(), RuntimeError> {
        let mut arguments = Arguments::new("update");
        arguments.option("--resources", Path::new("-"));
        arguments.push(&*self.id);
        self.run(Operation::Update, arguments, Some(resources)).await.map(drop)
    }

    /// `state`: what the runtime reports.
    pub async fn state(&self) -> Result<RuntimeState, RuntimeError> {
        let mut arguments = Arguments::new("state");
        arguments.push(&*self.id);
        let output = self.run(Operation::State, arguments, None).await?;
        serde_json::from_slice(&output).map_err(|error| RuntimeError::Output {
            operation: Operation::State,
            id: self.id.to_string(),
            reason: error.to_string(),
        })
    }

    /// Runs a command that leaves a process behind, and adopts that process.
    async fn launch(
        &self,
        operation: Operation,
        arguments: Arguments,
        streams: Streams,
        pid_file: &Path,
    ) -> Result<Launched, RuntimeError> {
        // Taken before the spawn: the new process may end before its pid is read.
        let ticket = self.runtime.reaper.ticket();
        let launched = match self.call(operation, arguments, streams).await {
            Ok(_) => self.adopt(operation, &ticket, pid_file),
            Err(error) => Err(error),
        };
        if launched.is_err() {
            self.end_unannounced(operation, ticket, pid_file);
        }
        launched
    }

    /// Adopts the process whose pid the runtime wrote into `pid_file`.
    fn adopt(
        &self,
        operation: Operation,
        ticket: &Ticket,
        pid_file: &Path,
    ) -> Result<Launched, RuntimeError> {
        let id = || self.id.to_string();
        let pid = bundle::read_pid(pid_file).map_err(|source| RuntimeError::Bundle {
            operation,
            id: id(),
            source,
        })?;
        let (process, exit) = self
            .runtime
            .reaper
            .adopt(ticket, pid)
            .map_err(|source| RuntimeError::Adopt { operation, id: id(), pid, source })?;
        let runtime_init = process.executable().ok();
        Ok(Launched { process, exit, runtime_init })
    }

    fn has_bundle(&self) -> bool {
        self.bundle.path().is_dir()
    }

    /// Runs a command whose output podshim reads, and returns its stdout.
    async fn run(
        &self,
        operation: Operation,
        arguments: Arguments,
        stdin: Option<&[u8]>,
    ) -> Result<Vec<u8>, RuntimeError> {
        let captured = Captured::new(stdin).map_err(|source| RuntimeError::Spawn {
            operation,
            id: self.id.to_string(),
            binary: self.runtime.binary.clone(),
            source,
        })?;
        self.call(operation, arguments, Streams::Captured(captured)).await
    }

    async fn call(
        &self,
        operation: Operation,
        arguments: Arguments,
        streams: Streams,
    ) -> Result<Vec<u8>, RuntimeError> {
        let id = || self.id.to_string();
        let binary = &self.runtime.binary;
        let spawn_error =
            |source| RuntimeError::Spawn { operation, id: id(), binary: binary.clone(), source };
        let log = self.has_bundle().then(|| LogPosition::remember(self.bundle.log_path()));
        let (child, mut captured) = {
            let mut command = Command::new(binary);
            for variable in SERVICE_MANAGER_VARIABLES {
                command.env_remove(variable);
            }
            command.arg("--root").arg(&self.runtime.root);
            if let Some(log) = &log {
                command.arg("--log").arg(&log.path).args(["--log-format", "json"]);
            }
            if self.runtime.cgroup_driver == CgroupDriver::Systemd {
                command.arg("--systemd-cgroup");
            }
            if let Some(criu) = &self.runtime.criu {
                command.arg("--criu").arg(criu);
            }
            command.args(&arguments.0);
            // If a hook hangs, the hook must be killed too. The process that becomes the container leaves the group.
            command.process_group(0);
            let captured = streams.attach(&mut command).map_err(spawn_error)?;
            // This block drops the command: its copies of the container's streams must not outlive the spawn, or
            // containerd would never see EOF.
            (self.runtime.reaper.spawn(&mut command).map_err(spawn_error)?, captured)
        };
        let exit = self.wait(operation, child).await?;
        if exit.code == 0 {
            return Ok(captured.as_mut().map(Captured::stdout).unwrap_or_default());
        }
        let message = log
            .and_then(|log| log.last_error())
            .or_else(|| captured.as_mut().and_then(Captured::last_error_line))
            .unwrap_or_else(|| match exit.signal {
                Some(signal) => format!("{} was killed by signal {signal}", binary.display()),
                None => format!("{} ended with exit status {}", binary.display(), exit.code),
            });
        Err(match exit.signal {
            Some(_) => RuntimeError::Killed { operation, id: id(), message },
            None => RuntimeError::Failed { operation, id: id(), message },
        })
    }

    async fn wait(&self, operation: Operation, child: Child) -> Result<Exit, RuntimeError> {
        let Child { process, mut exit } = child;
        let limit = operation.time_limit();
        let deadline = Instant::now() + limit;
        // A new incarnation (R6) has another pid; this exec is not in it.
        let init = self.bundle.read_init_pid().ok().filter(|_| operation == Operation::Exec);
        let error = loop {
            let look = init.map_or(deadline, |_| deadline.min(Instant::now() + INIT_POLL));
            if let Ok(exit) = tokio::time::timeout_at(look, &mut exit).await {
                return Ok(exit);
            }
            let id = self.id.to_string();
            if Instant::now() >= deadline {
                break RuntimeError::TimedOut { operation, id, limit };
            }
            if init.is_some_and(|init| !self.runtime.reaper.is_watched(init)) {
                break RuntimeError::Outlived { operation, id };
            }
        };
        self.kill_group(operation, &process);
        // So that the runtime is no longer at work when its work is undone. A runtime in uninterruptible sleep is not
        // waited for.
        let _ = tokio::time::timeout(DEATH_LIMIT, &mut exit).await;
        Err(error)
    }

    fn remove_stale(&self, operation: Operation, pid_file: &Path) -> Result<(), RuntimeError> {
        // A pid of the previous incarnation (rule R6) must never be taken for the new one's.
        match fs::remove_file(pid_file) {
            Err(source) if source.kind() != io::ErrorKind::NotFound => Err(RuntimeError::Bundle {
                operation,
                id: self.id.to_string(),
                source: BundleError::Write { path: pid_file.to_owned(), source },
            }),
            _ => Ok(()),
        }
    }
}
