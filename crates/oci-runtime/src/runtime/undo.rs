//! What a failed create or restore has left behind: the runtime may have done its work before it failed, or was killed in
//! the middle of it.
//!
//! Owns the way back to the state before the call. Ends no process that the failed call did not make.

use std::path::Path;
use std::{fs, io};

use cgroups::abandoned::{remove_abandoned, remove_empty};
use tokio::time::Instant;
use tracing::warn;

use super::call::DEATH_LIMIT;
use super::container::Container;
use super::delete::DeleteMode;
use super::error::{Operation, RuntimeError};

#[cfg(test)]
mod tests;

impl Container {
    /// Removes what a failed create has made, but no container that existed before: a runtime that refuses the id
    /// writes no pid file.
    pub(super) async fn undo_create(&self, error: &RuntimeError, pid_file: &Path) {
        let was_made = fs::remove_file(pid_file).is_ok();
        if was_made || error.may_have_left_a_container() {
            return self.remove_half_made(Operation::Create).await;
        }
        // crun leaves the cgroup if the kernel lets it make no process there, as in a pid namespace whose process 1 has just been
        // killed (crun 1.21; K16). If it knows a container of this id, the cgroup is that one's.
        if self.cgroups_path().is_some()
            && let Err(unknown) = self.regardless().state().await
            && unknown.is_not_found()
        {
            self.remove_empty_groups(Operation::Create).await;
        }
    }

    /// Removes the groups that the runtime has left, and leaves those that have a process in them.
    pub(super) async fn remove_empty_groups(&self, operation: Operation) {
        if let Some(path) = self.cgroups_path() {
            let removed = remove_empty(path).await;
            self.report_left_cgroup(operation, removed);
        }
    }

    fn report_left_cgroup(&self, operation: Operation, removed: io::Result<()>) {
        if let Err(error) = removed {
            warn!(container = %self.id, %operation, %error, "the OCI runtime failed, and the cgroup that it left cannot be removed");
        }
    }

    /// Removes all that is left of the container after a failed `operation`.
    pub(super) async fn remove_half_made(&self, operation: Operation) {
        if let Err(error) = self.regardless().delete(DeleteMode::Force).await {
            warn!(container = %self.id, %operation, %error, "the OCI runtime failed, and the rest of the container that it left cannot be removed");
        }
        // If the runtime was killed before it recorded the container, its `delete` leaves the cgroups behind.
        if let Some(path) = self.cgroups_path() {
            let removed = remove_abandoned(path, Instant::now() + DEATH_LIMIT).await;
            self.report_left_cgroup(operation, removed);
        }
    }
}
