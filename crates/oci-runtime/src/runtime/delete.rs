//! The runtime's `delete`, with `--force` only where it is needed.

#[cfg(test)]
mod tests;

use cgroups::KeptGroups;
use tracing::warn;

use super::command::Arguments;
use super::container::Container;
use super::error::{Operation, RuntimeError};

/// What the caller knows of a container that is to be deleted. Deleting one that does not exist succeeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeleteMode {
    /// Its process has ended. `--force` is used only if the runtime does not delete it otherwise: with it, runc 1.2 and
    /// later wait 100 ms for a process to die, even if there is none.
    Ended,
    /// It may run: kill it first.
    Force,
}

/// What [`Container::delete_all_but`] has left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupsLeft {
    /// All of the container's groups.
    All,
    /// At least one is gone.
    Removed,
}

/// How a container has come to be deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deleted {
    ByRuntime,
    /// The runtime knows no such container.
    WasUnknown,
}

impl Container {
    pub(super) async fn runtime_delete(&self, mode: DeleteMode) -> Result<(), RuntimeError> {
        let deleted = match (mode, self.try_delete(mode).await) {
            (DeleteMode::Force, Err(_)) if !self.has_bundle() => self.try_delete(mode).await,
            // The runtime refused and returned. A runtime that hangs is called only once.
            (DeleteMode::Ended, Err(refusal @ RuntimeError::Failed { .. })) => match self.state().await {
                // The runtime did remove the container; what failed came after that: a poststop hook.
                Err(error) if error.is_not_found() => Err(refusal),
                // Its cgroup is frozen (on cgroup v2 a paused container can be killed), or busy with processes that are
                // left in it.
                _ => self.try_delete(DeleteMode::Force).await,
            },
            (_, result) => result,
        };
        if deleted? == Deleted::WasUnknown {
            // R6, T10: a restart in place that is given up has deleted the container without its groups.
            self.remove_empty_groups(Operation::Delete).await;
        }
        Ok(())
    }

    /// `delete` of an ended container whose groups the next process shall be in (R6). Returns whether they are still there: where
    /// the runtime cannot be kept from removing them, the container is deleted all the same.
    ///
    /// # Errors
    /// As [`Self::delete`].
    pub async fn delete_all_but(&self, groups: &KeptGroups) -> Result<GroupsLeft, RuntimeError> {
        let hidden = self.hiding(groups.hidden());
        if let Err(error) = hidden.try_delete(DeleteMode::Ended).await {
            warn!(container = %self.id, %error, "its control groups are not kept over the restart");
            self.delete(DeleteMode::Ended).await?;
        }
        Ok(if groups.exist() { GroupsLeft::All } else { GroupsLeft::Removed })
    }

    async fn try_delete(&self, mode: DeleteMode) -> Result<Deleted, RuntimeError> {
        let mut arguments = Arguments::new("delete");
        if mode == DeleteMode::Force {
            arguments.push("--force");
        }
        arguments.push(&*self.id);
        match self.run(Operation::Delete, arguments, None).await {
            // crun reports an unknown container even with --force; runc does not.
            Err(error) if error.is_not_found() => Ok(Deleted::WasUnknown),
            result => result.map(|_| Deleted::ByRuntime),
        }
    }
}
