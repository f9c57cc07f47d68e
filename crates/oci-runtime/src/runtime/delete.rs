//! The runtime's `delete`: by force only what needs it.

#[cfg(test)]
mod tests;

use super::command::Arguments;
use super::{Container, Operation, RuntimeError};

/// What `delete` may do to a container that still runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeleteMode {
    /// Fail.
    Stopped,
    /// Kill it first; deleting a container that does not exist succeeds.
    Force,
}

impl Container {
    /// `delete`: removes a stopped container, or kills and removes it. A hung runtime is called only once.
    ///
    /// By force also without a bundle: containerd 1.7 may remove that of a dead shim's container beside us, and the
    /// runtime's log with it, even during the first try (N3).
    pub async fn delete(&self, mode: DeleteMode) -> Result<(), RuntimeError> {
        match self.try_delete(mode).await {
            Err(_) if mode == DeleteMode::Force && !self.has_bundle() => self.try_delete(mode).await,
            result => result,
        }
    }

    /// Without `--force` first: with it runc 1.2 and later wait 100 ms for a process to die, also where there is none.
    async fn try_delete(&self, mode: DeleteMode) -> Result<(), RuntimeError> {
        match (self.call_delete(&[]).await, mode) {
            // crun reports an unknown container even with --force; runc does not.
            (Err(error), DeleteMode::Force) if error.is_not_found() => Ok(()),
            (Err(refusal @ RuntimeError::Failed { .. }), DeleteMode::Force) => match self.state().await {
                // It was removed, and what failed is what comes after: a poststop hook.
                Err(error) if error.is_not_found() => Err(refusal),
                // It runs, or its group is frozen.
                _ => self.call_delete(&["--force"]).await,
            },
            (result, _) => result,
        }
    }

    async fn call_delete(&self, options: &[&str]) -> Result<(), RuntimeError> {
        let mut arguments = Arguments::new("delete");
        for option in options {
            arguments.push(option);
        }
        arguments.push(&*self.id);
        self.run(Operation::Delete, arguments, None).await.map(drop)
    }
}
