//! The calls of a sandbox that podshim makes itself (`sandbox`), in place of the OCI runtime's.

use std::{fs, io, rc::Rc};

use tokio::time::Instant;
use tracing::warn;

use super::call::DEATH_LIMIT;
use super::container::Container;
use super::error::{Operation, RuntimeError};
use super::launch::Launched;
use super::settings::SessionKeyring;
use crate::{
    busy,
    cgroup::{Cgroup, abandoned::remove_abandoned},
    sandbox::{Groups, Record, SandboxRequest, make, understood},
};

#[cfg(test)]
mod tests;

impl Container {
    /// The same container, made by podshim itself.
    #[must_use]
    pub fn as_sandbox(self, request: SandboxRequest) -> Self {
        Self { sandbox: Some(Rc::new(request)), ..self }
    }

    /// Whether podshim makes it: then it has an empty root, and needs no root file system.
    pub fn is_own_sandbox(&self) -> bool {
        self.sandbox.is_some()
    }

    pub(super) async fn create_sandbox(
        &self,
        request: &SandboxRequest,
        keyring: SessionKeyring,
    ) -> Result<Launched, RuntimeError> {
        // Before anything is made or recorded: what is in its groups is killed when it is deleted.
        let failed = |message: String| self.sandbox_error(Operation::Create, message);
        let groups = Groups::at(request.cgroups_path()).map_err(|error| failed(error.to_string()))?;
        if let Some(group) = groups.occupied() {
            return Err(failed(format!("its control group {} has processes in it", group.display())));
        }
        let launched =
            busy::during("the start of a sandbox", || self.launch_sandbox(request, &groups, keyring));
        if launched.is_err()
            && let Err(error) = self.delete_sandbox(request.cgroups_path()).await
        {
            warn!(container = %self.id, %error, "the sandbox could not be made, and what was made of it cannot be removed");
        }
        launched
    }

    /// No await: the process belongs to this call from the moment that it exists.
    fn launch_sandbox(
        &self,
        request: &SandboxRequest,
        groups: &Groups,
        keyring: SessionKeyring,
    ) -> Result<Launched, RuntimeError> {
        let failed = |step: &str, source: io::Error| {
            self.sandbox_error(Operation::Create, format!("{step}: {source}"))
        };
        let root = self.bundle.rootfs();
        self.record()
            .write(request.cgroups_path())
            .map_err(|error| failed("cannot record the sandbox", error))?;
        let prepare = || {
            fs::create_dir_all(&root)?;
            groups.make(request.limits())?;
            groups.entrances()
        };
        let entrances = prepare().map_err(|error| failed("cannot make its control groups", error))?;
        let ticket = self.runtime.reaper.ticket();
        let pid = make(request, &self.id, &root, &entrances, keyring)
            .map_err(|error| self.sandbox_error(Operation::Create, error.to_string()))?;
        let adopted = self.runtime.reaper.adopt(&ticket, pid);
        let (process, exit) = adopted.map_err(|source| RuntimeError::Adopt {
            operation: Operation::Create,
            id: self.id.to_string(),
            pid,
            source,
        })?;
        fs::write(self.bundle.init_pid_path(), pid.to_string())
            .map_err(|error| failed("cannot write its pid into the bundle", error))?;
        // It runs its program already.
        Ok(Launched { process, exit, runtime_init: None })
    }

    /// Ends what is left in its groups, and removes them.
    pub(super) async fn delete_sandbox(&self, cgroups_path: &str) -> Result<(), RuntimeError> {
        let failed = |error: io::Error| self.sandbox_error(Operation::Delete, error.to_string());
        remove_abandoned(cgroups_path, Instant::now() + DEATH_LIMIT).await.map_err(failed)?;
        self.record().remove().map_err(failed)
    }

    /// The path of its groups if podshim made it, also another shim of podshim's.
    pub(super) fn recorded_sandbox(&self) -> Result<Option<String>, RuntimeError> {
        self.record().read().map_err(|error| self.sandbox_error(Operation::Delete, error.to_string()))
    }

    pub(super) fn update_sandbox(
        &self,
        request: &SandboxRequest,
        resources: &[u8],
    ) -> Result<(), RuntimeError> {
        let failed = |reason: String| self.sandbox_error(Operation::Update, reason);
        let document = serde_json::from_slice(resources).map_err(|error| failed(error.to_string()))?;
        let limits = understood(&document).map_err(failed)?;
        let write = || Groups::at(request.cgroups_path())?.limit(&limits);
        write().map_err(|error| failed(error.to_string()))
    }

    /// As the OCI runtime answers for a program that the root file system has not.
    pub(super) fn refuse_exec(&self, process: &[u8]) -> RuntimeError {
        let process: serde_json::Value = serde_json::from_slice(process).unwrap_or_default();
        let program = process["args"][0].as_str().unwrap_or_default();
        let reason = match program.contains('/') {
            true => format!("stat {program}: no such file or directory"),
            false => "executable file not found in $PATH".to_owned(),
        };
        self.sandbox_error(
            Operation::Exec,
            format!("exec failed: unable to start container process: exec: {program:?}: {reason}"),
        )
    }

    pub(super) fn freeze_sandbox(
        &self,
        cgroup: Option<&Cgroup>,
        operation: Operation,
    ) -> Result<(), RuntimeError> {
        let failed = |error: io::Error| self.sandbox_error(operation, error.to_string());
        let Some(cgroup) = cgroup else {
            return Err(failed(io::Error::new(io::ErrorKind::NotFound, "it has no cgroup any more")));
        };
        match operation {
            Operation::Pause => cgroup.freeze_for_good().map_err(failed),
            _ => cgroup.thaw().map_err(failed),
        }
    }

    pub(super) fn sandbox_error(&self, operation: Operation, message: String) -> RuntimeError {
        RuntimeError::Failed { operation, id: self.id.to_string(), message }
    }

    fn record(&self) -> Record {
        Record::of(&self.runtime.root, &self.id)
    }
}
