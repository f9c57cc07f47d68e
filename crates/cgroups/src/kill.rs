//! Signals to everything in a container's groups, and SIGKILL until nothing is left.
//!
//! Owns the order of pinning a process and checking that it still is a member. Signals nothing outside of the group.

use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use nix::unistd::Pid;
use processes::{Process, SignalNumber};
use threads::at_once;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::group::{Cgroup, FreezeState};

const KILL_POLL_FIRST: Duration = Duration::from_millis(1);
const KILL_POLL_LONGEST: Duration = Duration::from_millis(50);
/// How many pidfds are open at a time; the limit of open files may be as low as 1024.
const KILL_BATCH: usize = 256;

/// The end of [`Cgroup::kill_remaining`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KillOutcome {
    /// Nothing is left.
    Empty,
    /// These were still there at the deadline (in uninterruptible sleep, for example), or were never touched because
    /// the shim itself is among them.
    Remaining(BTreeSet<Pid>),
    /// None of them could be listed at the deadline, but another process keeps a list of them from being read (`guard`).
    Unlisted,
}

impl Cgroup {
    /// Kills everything in the group until it is empty or the deadline passes.
    ///
    /// For what a container's init leaves behind if it does not have its own pid namespace, and before a restart in
    /// place (rule R6). Cancel-safe: what was killed stays killed.
    pub async fn kill_remaining(&self, deadline: Instant) -> KillOutcome {
        // A runtime that makes no cgroups leaves the container in the shim's group, which may be the host's root group.
        let members = self.pids();
        if members.contains(&nix::unistd::getpid()) {
            warn!("the container is in the shim's own cgroup: processes that it left behind are not killed");
            return KillOutcome::Remaining(members);
        }
        if let Self::V2(directory) = self {
            // From Linux 5.14: one write, which no fork can outrun. Without it the loop below does the work.
            if let Err(error) = at_once::write(directory.join("cgroup.kill"), "1") {
                debug!(%error, directory = %directory.display(), "cannot write cgroup.kill: the shim kills the processes one by one");
            }
        }
        let mut pause = KILL_POLL_FIRST;
        loop {
            let members = self.members();
            if members.are_none() {
                return KillOutcome::Empty;
            }
            if Instant::now() >= deadline {
                return match members.pids.is_empty() {
                    true => KillOutcome::Unlisted,
                    false => KillOutcome::Remaining(members.pids),
                };
            }
            self.kill_members().await;
            // No event reports that a v1 group has become empty.
            tokio::time::sleep_until(deadline.min(Instant::now() + pause)).await;
            pause = (pause * 2).min(KILL_POLL_LONGEST);
        }
    }

    /// Sends SIGKILL to everything that is in the group now, once, and waits for nothing: no freezer, which waits for processes in
    /// uninterruptible sleep.
    ///
    /// For a process that SIGKILL does not end because another one of its container holds what it waits for (H1).
    pub async fn kill_all_once(&self) {
        let members = self.pids();
        if members.contains(&nix::unistd::getpid()) {
            return;
        }
        if let Self::V2(directory) = self
            && at_once::write(directory.join("cgroup.kill"), "1").is_ok()
        {
            return;
        }
        self.signal_pinned(members, SignalNumber::KILL).await;
    }

    /// Sends a signal to every process that is in the group now (rule K14). `runc kill --all` did so until runc 1.2,
    /// which ignores that option.
    ///
    /// # Errors
    /// `Unsupported` if the shim itself is in the group: then the group is not the container's own.
    pub async fn signal_members(&self, signal: SignalNumber) -> io::Result<()> {
        let members = self.pids();
        if members.contains(&nix::unistd::getpid()) {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "the container has no cgroup of its own"));
        }
        // As `runc kill --all` did, for the same reason as in `kill_members`. A container that its user has paused
        // stays frozen.
        let _frozen = match self.freeze_state() {
            FreezeState::Thawed => self.freeze().await,
            FreezeState::Freezing | FreezeState::Frozen => None,
        };
        self.signal_pinned(self.pids(), signal).await;
        Ok(())
    }

    async fn kill_members(&self) {
        // v1 has no cgroup.kill, and a fork bomb makes members faster than they can be signalled. SIGKILL takes effect
        // when the guard thaws the group.
        let frozen = match self {
            Self::V1(_) => self.freeze().await,
            Self::V2(_) => None,
        };
        self.signal_pinned(self.pids(), SignalNumber::KILL).await;
        drop(frozen);
        // K17: the guard thaws this group. One inside of it may have been frozen by another process.
        self.thaw_all().await;
    }

    async fn signal_pinned(&self, pids: BTreeSet<Pid>, signal: SignalNumber) {
        let pids: Vec<Pid> = pids.into_iter().collect();
        for batch in pids.chunks(KILL_BATCH) {
            // These are not the shim's children: pin the pids first, then check that they still are members.
            let pinned: Vec<Process> = batch.iter().filter_map(|pid| Process::open(*pid).ok()).collect();
            let members = self.pids();
            for process in pinned.iter().filter(|process| members.contains(&process.pid())) {
                if let Err(error) = process.signal(signal) {
                    debug!(pid = %process.pid(), %error, "cannot signal a process of a cgroup");
                }
            }
            // A group of thousands must not occupy the owner's only thread.
            tokio::task::yield_now().await;
        }
    }
}
