//! What a failed runtime has left behind: it may have done its work before it failed, or was killed in the middle of
//! it.
//!
//! Owns the way back to the state before the call. Ends no process that the failed call did not make.

use std::{fs, path::Path, time::Duration};

use nix::sys::signal::{Signal, killpg};
use tokio::time::Instant;
use tracing::warn;

use super::{Container, DeleteMode, Operation, RuntimeError};
use crate::{
    bundle,
    cgroup::{Cgroup, FreezeState, abandoned::remove_abandoned},
    process::{Process, SignalNumber},
    reaper::Ticket,
};

#[cfg(test)]
mod tests;

/// How long podshim waits for the end of a process that got SIGKILL.
pub(super) const DEATH_LIMIT: Duration = Duration::from_secs(5);

impl Container {
    /// Removes what a failed create has made, but no container that existed before: a runtime that refuses the id
    /// writes no pid file.
    pub(super) async fn undo_create(&self, error: &RuntimeError, pid_file: &Path) {
        let was_made = fs::remove_file(pid_file).is_ok();
        if !was_made && !error.may_have_left_a_container() {
            return;
        }
        self.remove_half_made(Operation::Create).await;
    }

    /// Removes all that is left of the container after a failed `operation`.
    pub(super) async fn remove_half_made(&self, operation: Operation) {
        if let Err(error) = self.delete(DeleteMode::Force).await {
            warn!(container = %self.id, %operation, %error, "the OCI runtime failed, and the rest of the container that it left cannot be removed");
        }
        // If the runtime was killed before it recorded the container, its `delete` leaves the cgroups behind.
        let path = self.bundle.read_spec().ok().and_then(|spec| spec.linux?.cgroups_path);
        if let Some(path) = path
            && let Err(error) = remove_abandoned(&path, Instant::now() + DEATH_LIMIT).await
        {
            warn!(container = %self.id, %operation, %error, "the OCI runtime failed, and the cgroup that it left cannot be removed");
        }
    }

    /// Ends the process that a failed runtime had already made: nothing else would end it.
    pub(super) fn end_unannounced(&self, operation: Operation, ticket: Ticket, pid_file: &Path) {
        let pid = bundle::read_pid(pid_file).ok();
        // `None`: the process has ended, or is not the shim's child; then the file is as wrong as the runtime.
        let adopted = pid.and_then(|pid| self.runtime.reaper.adopt(&ticket, pid).ok());
        match adopted {
            Some((process, _)) => self.end(&process),
            // The process of a failed create or restore is removed with its container.
            None if operation == Operation::Exec => {
                drop(ticket);
                self.end_unnamed();
            }
            None => {}
        }
    }

    /// Ends the process of a failed exec if the runtime reported no pid for it, or a wrong one.
    ///
    /// It is the child of the shim in the container's cgroups that no other call claims. Processes that the container
    /// itself leaves behind become children of its own init, or of pause in a shared pid namespace. In the node's pid
    /// namespace they become the shim's children too, so there podshim ends none: it might be an innocent one.
    fn end_unnamed(&self) {
        let reaper = self.runtime.reaper.clone();
        let Some(cgroup) = self.bundle.read_init_pid().ok().and_then(|init| Cgroup::of_pid(init).ok()) else {
            return;
        };
        let members = cgroup.pids();
        // Then these cgroups are not the container's own.
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
            // Another exec may be about to report this process as its own.
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
            warn!(container = %self.id, %pid, %error, "the OCI runtime failed, and the process that it left cannot be killed");
        }
    }

    /// Kills a runtime that takes too long, together with a hook that it may be waiting for.
    ///
    /// A signal by process group number is safe until the runtime has been reaped: its group keeps the number until
    /// then.
    pub(super) fn kill_group(&self, operation: Operation, runtime: &Process) {
        if let Err(error) = killpg(runtime.pid(), Signal::SIGKILL) {
            warn!(container = %self.id, %operation, %error, "cannot kill an OCI runtime that exceeded its time limit");
        }
    }

    /// Lets the container's processes run again if they ran `before` a call that failed.
    pub(super) fn thaw_again(&self, cgroup: Option<&Cgroup>, before: Option<FreezeState>) {
        if let (Some(cgroup), Some(FreezeState::Thawed)) = (cgroup, before)
            && cgroup.freeze_state() != FreezeState::Thawed
        {
            self.thaw(cgroup);
        }
    }

    /// Lets the container's processes run, and returns whether they do.
    pub(super) fn thaw(&self, cgroup: &Cgroup) -> FreezeState {
        if let Err(error) = cgroup.thaw() {
            warn!(container = %self.id, %error, "the OCI runtime left the container frozen, and the shim cannot thaw it");
        }
        cgroup.freeze_state()
    }
}

/// Whether the process is in the shim's pid namespace, which is the node's. A process that is gone counts as in it.
fn is_in_our_pid_namespace(process: &Process) -> bool {
    let own = fs::read_link("/proc/self/ns/pid");
    let its = fs::read_link(format!("/proc/{}/ns/pid", process.pid()));
    match (own, its) {
        (Ok(own), Ok(its)) => own == its,
        _ => true,
    }
}
