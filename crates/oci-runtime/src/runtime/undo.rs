//! What a runtime that failed has left all the same: it may have done its work before, or was killed in the middle of it.
//!
//! Owns the way back to how things were before the call. Ends no process that the failed call did not make.

use std::{fs, path::Path, time::Duration};

use nix::sys::signal::{Signal, killpg};
use tokio::time::Instant;
use tracing::warn;

use super::{Container, DeleteMode, Operation, RuntimeError};
use crate::{
    bundle,
    cgroup::{Cgroup, FreezeState, remove_abandoned},
    process::{Process, SignalNumber},
    reaper::Ticket,
};

#[cfg(test)]
mod tests;

/// How long something that got SIGKILL is waited for.
pub(super) const DEATH_LIMIT: Duration = Duration::from_secs(5);

impl Container {
    /// Removes what a create that failed has made. Not a container that was there before it: a runtime that is refused
    /// the id writes no pid file.
    pub(super) async fn undo_create(&self, error: &RuntimeError, pid_file: &Path) {
        let was_made = fs::remove_file(pid_file).is_ok();
        if !was_made && !error.may_have_left_a_container() {
            return;
        }
        if let Err(error) = self.delete(DeleteMode::Force).await {
            warn!(container = %self.id, %error, "cannot remove a container that failed to be created");
        }
        // One that was killed before it noted the container leaves its groups to nobody.
        let path = self.bundle.read_spec().ok().and_then(|spec| spec.linux?.cgroups_path);
        if let Some(path) = path
            && let Err(error) = remove_abandoned(&path, Instant::now() + DEATH_LIMIT).await
        {
            warn!(container = %self.id, %error, "cannot remove the cgroup of a container that failed to be created");
        }
    }

    /// Ends the process of a runtime that failed after it had made it: nobody else would.
    pub(super) fn end_unannounced(&self, ticket: &Ticket, pid_file: &Path) {
        let Ok(pid) = bundle::read_pid(pid_file) else { return };
        // It has ended, or is none of ours: then the file is as wrong as the runtime.
        let Ok((process, _)) = self.runtime.reaper.adopt(ticket, pid) else { return };
        if let Err(error) = process.signal(SignalNumber::KILL) {
            warn!(container = %self.id, %pid, %error, "cannot end the process of a runtime that failed");
        }
    }

    /// Kills a runtime that takes too long, with the hook that it may be waiting for.
    ///
    /// By number, which is safe before its exit has been reaped: its group keeps the number until then.
    pub(super) fn kill_group(&self, operation: Operation, runtime: &Process) {
        if let Err(error) = killpg(runtime.pid(), Signal::SIGKILL) {
            warn!(container = %self.id, %operation, %error, "cannot kill a runtime that takes too long");
        }
    }

    /// Lets everybody run, and tells whether they do.
    pub(super) fn thaw(&self, cgroup: &Cgroup) -> FreezeState {
        if let Err(error) = cgroup.thaw() {
            warn!(container = %self.id, %error, "cannot thaw a container that its runtime failed to");
        }
        cgroup.freeze_state()
    }
}
