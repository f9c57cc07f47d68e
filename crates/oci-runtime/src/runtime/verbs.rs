//! What each maker of containers does with the verbs that all have.
//!
//! Owns the question who has made a container: no other file asks. May do nothing itself: the OCI runtime's work is in a file for each
//! verb, podshim's own in `own_sandbox`.

use std::path::Path;
use std::rc::Rc;

use cgroups::Cgroup;
use own_processes::NotUnderstood;
use serde_json::Value;
use streams::stdio::ChildStdio;

use super::checkpoint::CheckpointOptions;
use super::container::Container;
use super::delete::DeleteMode;
use super::error::{Operation, RuntimeError};
use super::launch::Launched;
use super::maker::Maker;
use crate::settings::CreateOptions;

impl Container {
    /// The same container, made by `maker`.
    #[must_use]
    pub fn made_by(self, maker: Maker) -> Self {
        Self { maker, ..self }
    }

    /// Whether there are mounts of it alone, and no process.
    pub fn is_pins(&self) -> bool {
        matches!(self.maker, Maker::Pins)
    }

    /// Whether its programs are the pod's: they need a root file system, and see its groups.
    pub fn runs_the_pods_programs(&self) -> bool {
        matches!(self.maker, Maker::Runtime)
    }

    /// Its spec is as the maker is to see it: its place in its pod's stop (N5) came after the maker was chosen.
    ///
    /// # Errors
    /// What podshim does not do itself.
    pub fn spec_is(&mut self, spec: &Value) -> Result<(), NotUnderstood> {
        match &mut self.maker {
            Maker::Own(request) => Rc::make_mut(request).annotated(spec),
            // It reads the file.
            Maker::Runtime | Maker::Pins => Ok(()),
        }
    }

    /// `create`: leaves the runtime's init waiting for [`Self::start`], with `stdio` as its streams.
    ///
    /// After a failure nothing of the container is left: podshim deletes what the runtime made half way.
    ///
    /// # Errors
    /// The runtime fails, with its own words, or is not done in time.
    pub async fn create(
        &self,
        stdio: ChildStdio,
        options: CreateOptions<'_>,
    ) -> Result<Launched, RuntimeError> {
        match &self.maker {
            Maker::Runtime => self.runtime_create(stdio, options).await,
            Maker::Own(request) => self.create_sandbox(request, options.session_keyring).await,
            Maker::Pins => Err(self.no_process(Operation::Create)),
        }
    }

    /// `start`: makes a created container run its program.
    ///
    /// # Errors
    /// The runtime fails, with its own words.
    pub async fn start(&self) -> Result<(), RuntimeError> {
        match &self.maker {
            Maker::Runtime => self.runtime_start().await,
            // It runs since its create.
            Maker::Own(_) => Ok(()),
            Maker::Pins => Err(self.no_process(Operation::Start)),
        }
    }

    /// `exec --detach`: runs another process in the container. `process` is an OCI process as JSON.
    ///
    /// Also works in a created container (XP-1). The returned process may have ended already.
    ///
    /// # Errors
    /// The runtime fails, or the container has no such program.
    pub async fn exec(
        &self,
        exec_id: &str,
        process: &[u8],
        stdio: ChildStdio,
        console_socket: Option<&Path>,
    ) -> Result<Launched, RuntimeError> {
        match &self.maker {
            Maker::Runtime => self.runtime_exec(exec_id, process, stdio, console_socket).await,
            Maker::Own(_) => Err(self.refuse_exec(process)),
            Maker::Pins => Err(self.no_process(Operation::Exec)),
        }
    }

    /// `update`: applies an OCI `LinuxResources` document given as JSON.
    ///
    /// # Errors
    /// The runtime fails, or the kernel does not take a limit.
    pub async fn update(&self, resources: &[u8]) -> Result<(), RuntimeError> {
        match &self.maker {
            Maker::Runtime => self.runtime_update(resources).await,
            Maker::Own(request) => self.update_sandbox(request, resources).await,
            Maker::Pins => Err(self.no_process(Operation::Update)),
        }
    }

    /// `pause`: freezes every process of the container. After a failure they run, as far as `cgroup` shows.
    ///
    /// # Errors
    /// The runtime fails, or the processes cannot be frozen.
    pub async fn pause(&self, cgroup: Option<&Cgroup>) -> Result<(), RuntimeError> {
        match &self.maker {
            Maker::Runtime => self.runtime_pause(cgroup).await,
            Maker::Own(_) => self.freeze_sandbox(cgroup, Operation::Pause).await,
            Maker::Pins => Err(self.no_process(Operation::Pause)),
        }
    }

    /// `resume`: thaws a paused container. If the runtime fails to, podshim thaws `cgroup` itself (K17).
    ///
    /// # Errors
    /// Neither can thaw them.
    pub async fn resume(&self, cgroup: Option<&Cgroup>) -> Result<(), RuntimeError> {
        match &self.maker {
            Maker::Runtime => self.runtime_resume(cgroup).await,
            Maker::Own(_) => self.freeze_sandbox(cgroup, Operation::Resume).await,
            Maker::Pins => Err(self.no_process(Operation::Resume)),
        }
    }

    /// `checkpoint` into the directory `image_path`.
    ///
    /// A failed checkpoint leaves criu's log in the bundle and names it in its error. Afterwards the processes run, as
    /// far as `cgroup` shows: criu freezes them for its work, and a criu that was killed does not thaw them (K17).
    ///
    /// # Errors
    /// The runtime fails, or the sandbox is podshim's own.
    pub async fn checkpoint(
        &self,
        image_path: &Path,
        options: &CheckpointOptions,
        cgroup: Option<&Cgroup>,
    ) -> Result<(), RuntimeError> {
        match &self.maker {
            Maker::Runtime => self.runtime_checkpoint(image_path, options, cgroup).await,
            Maker::Own(_) => Err(self.refuse_checkpoint()),
            Maker::Pins => Err(self.no_process(Operation::Checkpoint)),
        }
    }

    /// `delete`: removes an ended container, or kills and removes it. Who has made it is asked of what is left of it: a `delete`
    /// comes when the shim that chose the maker is dead.
    ///
    /// By force it also works without a bundle: containerd 1.7 may remove the bundle of a dead shim's container at the
    /// same time, and the runtime's log with it, even during the first try (N3).
    ///
    /// # Errors
    /// The runtime fails, or something of the container is left.
    pub async fn delete(&self, mode: DeleteMode) -> Result<(), RuntimeError> {
        match self.recorded_sandbox()? {
            Some(cgroups_path) => self.delete_sandbox(&cgroups_path).await,
            None => self.runtime_delete(mode).await,
        }
    }

    fn no_process(&self, operation: Operation) -> RuntimeError {
        RuntimeError::Failed { operation, id: self.id.to_string(), message: "it has no process".to_owned() }
    }
}
