//! `checkpoint` and `restore` of the OCI runtime, which calls criu for them.
//!
//! Owns their arguments and the handling of criu's working directory. Does not decide whether a container may be
//! checkpointed.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use cgroups::Cgroup;
use streams::stdio::ChildStdio;
use tracing::warn;

use super::command::{Arguments, Streams};
use super::container::Container;
use super::error::{Operation, RuntimeError};
use super::launch::Launched;
use crate::settings::{CreateOptions, RootSwitch};

/// criu's working directory in a bundle, during a call.
const WORK_DIRECTORY: &str = "criu-work";

/// A log that criu writes.
struct CriuLog {
    /// Its name in criu's working directory.
    name: &'static str,
    /// Its name in the bundle, where podshim keeps it if criu failed.
    kept_as: &'static str,
}

/// containerd's shim keeps it under the same name.
const DUMP_LOG: CriuLog = CriuLog { name: "dump.log", kept_as: "criu-dump.log" };
/// containerd's shim keeps criu's whole directory instead.
const RESTORE_LOG: CriuLog = CriuLog { name: "restore.log", kept_as: "criu-restore.log" };

/// What happens to the container after the checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum AfterCheckpoint {
    /// It runs on.
    #[default]
    LeaveRunning,
    /// It is killed, and the runtime forgets it.
    End,
}

/// Settings of a checkpoint (`CheckpointOptions` of containerd).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CheckpointOptions {
    /// What happens to the container.
    pub after: AfterCheckpoint,
    /// criu's working directory, which stays; without it podshim uses one in the bundle and removes it.
    pub work_path: Option<PathBuf>,
    /// The images of an earlier dump.
    pub parent_path: Option<PathBuf>,
    /// Namespaces that are recorded as empty.
    pub empty_namespaces: Vec<String>,
    /// Flags for criu, in the runtime's spelling.
    pub flags: Vec<&'static str>,
    /// The criu to use (option CriuPath of containerd 1.x).
    pub criu_path: Option<PathBuf>,
}

/// Settings of a restore in addition to those of a create.
#[derive(Debug, Clone, Copy)]
pub struct RestoreOptions<'a> {
    /// The directory of the checkpoint.
    pub image_path: &'a Path,
    /// The images of an earlier dump.
    pub parent_path: Option<&'a Path>,
    /// criu's working directory (option CriuWorkPath); without it, one in the bundle.
    pub work_path: Option<&'a Path>,
    /// The criu to use (option CriuPath of containerd 1.x).
    pub criu_path: Option<&'a Path>,
    /// As for a create.
    pub create: CreateOptions<'a>,
}

impl Container {
    pub(super) async fn runtime_checkpoint(
        &self,
        image_path: &Path,
        options: &CheckpointOptions,
        cgroup: Option<&Cgroup>,
    ) -> Result<(), RuntimeError> {
        let before = cgroup.map(Cgroup::freeze_state);
        let own = self.bundle.path().join(WORK_DIRECTORY);
        let work_path = options.work_path.as_deref().unwrap_or(&own);
        let mut arguments = with_criu(options.criu_path.as_deref(), "checkpoint");
        if options.after == AfterCheckpoint::LeaveRunning {
            arguments.push("--leave-running");
        }
        arguments.option("--image-path", image_path);
        arguments.option("--work-path", work_path);
        if let Some(parent) = &options.parent_path {
            arguments.option("--parent-path", parent);
        }
        for flag in &options.flags {
            arguments.push(*flag);
        }
        for namespace in &options.empty_namespaces {
            arguments.option("--empty-ns", Path::new(namespace));
        }
        arguments.push(&*self.id);
        let result = self.run(Operation::Checkpoint, arguments, None).await.map(drop);
        let result = result.map_err(|error| self.with_log(error, work_path, &DUMP_LOG));
        if result.is_err() {
            self.thaw_again(cgroup, before);
        }
        if options.work_path.is_none() {
            remove_directory(&own);
        }
        result
    }

    /// `restore --detach`: makes the container from a checkpoint. The container runs when this returns.
    ///
    /// After a failure only criu's log is left of the container, and the error names it.
    ///
    /// # Errors
    /// The runtime fails; its words and criu's log are in it.
    pub async fn restore(
        &self,
        stdio: ChildStdio,
        options: RestoreOptions<'_>,
    ) -> Result<Launched, RuntimeError> {
        let pid_file = self.bundle.init_pid_path();
        self.remove_stale(Operation::Restore, &pid_file)?;
        let own = self.bundle.path().join(WORK_DIRECTORY);
        let mut arguments = with_criu(options.criu_path, "restore");
        arguments.option("--image-path", options.image_path);
        arguments.option("--work-path", options.work_path.unwrap_or(&own));
        if let Some(parent) = options.parent_path {
            arguments.option("--parent-path", parent);
        }
        arguments.push("--detach");
        arguments.option("--pid-file", &pid_file);
        if let Some(socket) = options.create.console_socket {
            arguments.option("--console-socket", socket);
        }
        if options.create.root_switch == RootSwitch::NoPivotRoot {
            arguments.push("--no-pivot");
        }
        // The container's init must be left to the shim as its subreaper.
        arguments.push("--no-subreaper");
        arguments.option("--bundle", self.bundle.path());
        arguments.push(&*self.id);
        let restored = self.launch(Operation::Restore, arguments, Streams::Container(stdio), &pid_file).await;
        let restored = match options.work_path {
            Some(_) => restored,
            None => {
                let restored = restored.map_err(|error| self.with_log(error, &own, &RESTORE_LOG));
                remove_directory(&own);
                restored
            }
        };
        if restored.is_err() {
            // A runtime that failed half way may have recorded the container, and would then refuse its id to a retry.
            self.remove_half_made(Operation::Restore).await;
        }
        restored
    }

    /// Keeps criu's log: the runtime's own message says only that criu failed, and criu's directory is removed.
    fn with_log(&self, error: RuntimeError, work_path: &Path, log: &CriuLog) -> RuntimeError {
        let RuntimeError::Failed { operation, id, message } = error else { return error };
        let kept = self.bundle.path().join(log.kept_as);
        let message = match fs::copy(work_path.join(log.name), &kept) {
            Ok(_) => {
                let first = message.lines().next().unwrap_or_default();
                format!("{first} (criu's log: {})", kept.display())
            }
            // criu was not run, or could not start.
            Err(_) => message,
        };
        RuntimeError::Failed { operation, id, message }
    }
}

/// A runtime finds criu in PATH unless it gets a path. Only runc has the option; it goes before the command.
fn with_criu(criu: Option<&Path>, command: &str) -> Arguments {
    let Some(criu) = criu else { return Arguments::new(command) };
    let mut arguments = Arguments::new("--criu");
    arguments.push(criu);
    arguments.push(command);
    arguments
}

fn remove_directory(path: &Path) {
    if let Err(error) = fs::remove_dir_all(path)
        && error.kind() != io::ErrorKind::NotFound
    {
        warn!(path = %path.display(), %error, "cannot remove criu's working directory");
    }
}
