//! A call that leaves a process behind, and the adoption of that process.

use std::fs;
use std::io;
use std::path::Path;

use processes::reaper::{ExitSubscription, ExitWatch};
use processes::{ExecutableIdentity, Process};

use super::command::{Arguments, Streams};
use super::container::Container;
use super::error::{Operation, RuntimeError};
use crate::bundle::{self, BundleError};

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

impl Container {
    /// Runs a command that leaves a process behind, and adopts that process.
    pub(super) async fn launch(
        &self,
        operation: Operation,
        arguments: Arguments,
        streams: Streams,
        pid_file: &Path,
    ) -> Result<Launched, RuntimeError> {
        // Taken before the spawn: the new process may end before its pid is read.
        let subscription = self.runtime.reaper.subscribe();
        let launched = match self.call(operation, arguments, streams).await {
            Ok(_) => self.adopt(operation, &subscription, pid_file),
            Err(error) => Err(error),
        };
        if launched.is_err() {
            self.end_unannounced(operation, subscription, pid_file);
        }
        launched
    }

    /// Adopts the process whose pid the runtime wrote into `pid_file`.
    fn adopt(
        &self,
        operation: Operation,
        subscription: &ExitSubscription,
        pid_file: &Path,
    ) -> Result<Launched, RuntimeError> {
        let id = || self.id.to_string();
        let pid = bundle::read_pid(pid_file).map_err(|source| RuntimeError::Bundle {
            operation,
            id: id(),
            source,
        })?;
        let reaper = &self.runtime.reaper;
        let adopted = match operation {
            Operation::Exec => reaper.adopt_exec(subscription, pid),
            _ => reaper.adopt(subscription, pid),
        };
        let (process, exit) =
            adopted.map_err(|source| RuntimeError::Adopt { operation, id: id(), pid, source })?;
        let runtime_init = process.executable().ok();
        Ok(Launched { process, exit, runtime_init })
    }

    pub(super) fn remove_stale(&self, operation: Operation, pid_file: &Path) -> Result<(), RuntimeError> {
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
