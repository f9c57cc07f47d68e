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
        self.remove_half_made(Operation::Create).await;
    }

    /// Removes whatever there is of the container after a failed `operation`.
    pub(super) async fn remove_half_made(&self, operation: Operation) {
        if let Err(error) = self.delete(DeleteMode::Force).await {
            warn!(container = %self.id, %operation, %error, "cannot remove what is left of a container that it failed to make");
        }
        // One that was killed before it noted the container leaves its groups to nobody.
        let path = self.bundle.read_spec().ok().and_then(|spec| spec.linux?.cgroups_path);
        if let Some(path) = path
            && let Err(error) = remove_abandoned(&path, Instant::now() + DEATH_LIMIT).await
        {
            warn!(container = %self.id, %operation, %error, "cannot remove the cgroup of a container that it failed to make");
        }
    }

    /// Ends the process of a runtime that failed after it had made it: nobody else would.
    pub(super) fn end_unannounced(&self, operation: Operation, ticket: Ticket, pid_file: &Path) {
        let pid = bundle::read_pid(pid_file).ok();
        // None: it has ended, or is none of ours: then the file is as wrong as the runtime.
        let adopted = pid.and_then(|pid| self.runtime.reaper.adopt(&ticket, pid).ok());
        match adopted {
            Some((process, _)) => self.end(&process),
            // What a create or a restore has made goes with its container.
            None if operation == Operation::Exec => {
                drop(ticket);
                self.end_unnamed();
            }
            None => {}
        }
    }

    /// Ends the process of an exec whose runtime did its work and named none, or another one.
    ///
    /// It is the one in the container's groups that is a child of the shim and that no call has named. What the
    /// container itself leaves behind is its own init's, or pause's where they share a pid namespace. Not so in the
    /// node's pid namespace: there it becomes the shim's too, so nobody is ended who might be innocent.
    fn end_unnamed(&self) {
        let reaper = self.runtime.reaper.clone();
        let Some(cgroup) = self.bundle.read_init_pid().ok().and_then(|init| Cgroup::of_pid(init).ok()) else {
            return;
        };
        let members = cgroup.pids();
        // Then the groups are not the container's own.
        if members.contains(&nix::unistd::getpid()) {
            return;
        }
        let mut suspects = reaper.unclaimed(members);
        suspects.retain(|process| !is_in_our_pid_namespace(process));
        if suspects.is_empty() {
            return;
        }
        let container = self.clone();
        tokio::task::spawn_local(async move {
            // Another exec may be about to name its own.
            reaper.wait_for_tickets().await;
            let pids = suspects.iter().map(Process::pid).collect();
            let unclaimed: Vec<_> = reaper.unclaimed(pids).iter().map(Process::pid).collect();
            for process in suspects.iter().filter(|process| unclaimed.contains(&process.pid())) {
                container.end(process);
            }
        });
    }

    fn end(&self, process: &Process) {
        if let Err(error) = process.signal(SignalNumber::KILL) {
            let pid = process.pid();
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

    /// Lets everybody run who ran `before` a call that failed.
    pub(super) fn thaw_again(&self, cgroup: Option<&Cgroup>, before: Option<FreezeState>) {
        if let (Some(cgroup), Some(FreezeState::Thawed)) = (cgroup, before)
            && cgroup.freeze_state() != FreezeState::Thawed
        {
            self.thaw(cgroup);
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

/// Whether it is in the namespace of the shim, which is the node's. A process that is gone is.
fn is_in_our_pid_namespace(process: &Process) -> bool {
    let own = fs::read_link("/proc/self/ns/pid");
    let its = fs::read_link(format!("/proc/{}/ns/pid", process.pid()));
    match (own, its) {
        (Ok(own), Ok(its)) => own == its,
        _ => true,
    }
}
