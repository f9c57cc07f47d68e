//! The process that a runtime had already made when it failed: nothing else would end it.

use std::fs;
use std::path::Path;

use cgroups::Cgroup;
use processes::reaper::ExitSubscription;
use processes::{Process, SignalNumber};
use tracing::warn;

use super::container::Container;
use super::error::Operation;
use crate::bundle;

impl Container {
    /// Ends the process that a failed runtime had already made: nothing else would end it.
    pub(super) fn end_unannounced(
        &self,
        operation: Operation,
        subscription: ExitSubscription,
        pid_file: &Path,
    ) {
        let pid = bundle::read_pid(pid_file).ok();
        // `None`: the process has ended, or is not the shim's child; then the file is as wrong as the runtime.
        let adopted = pid.and_then(|pid| self.runtime.reaper.adopt(&subscription, pid).ok());
        match adopted {
            Some((process, _)) => self.end(&process),
            // The process of a failed create or restore is removed with its container.
            None if operation == Operation::Exec => {
                drop(subscription);
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
    pub(super) fn end_unnamed(&self) {
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
            reaper.wait_for_subscriptions().await;
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
