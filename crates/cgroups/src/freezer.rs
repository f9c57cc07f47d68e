//! Freezes a group while its members are being signalled.
//!
//! Owns the thaw: a group that this module has frozen never stays frozen, but for that of podshim's own sandbox which its
//! user pauses. The OCI runtime pauses a container; podshim thaws one if the runtime fails to.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

use threads::at_once;
use tokio::time::Instant;
use tracing::{debug, warn};

use super::group::{Cgroup, FreezeState, Members};

/// How long members may take to stop; one in uninterruptible sleep does not stop.
const FREEZE_LIMIT: Duration = Duration::from_millis(200);
const FREEZE_POLL: Duration = Duration::from_millis(1);

/// A frozen group. Dropping it lets the members run; those with a deadly signal pending then die.
#[derive(Debug)]
pub(super) struct FrozenGroup {
    /// `None` once it shall stay frozen. Open from before the freeze on: no process can have a lease on it meanwhile, which would keep
    /// the group from being thawed.
    state: Option<File>,
    path: PathBuf,
    thawed: &'static str,
}

impl Cgroup {
    /// The file that shows whether the group is frozen, and its values for yes and no.
    fn freezer(&self) -> Option<(PathBuf, &'static str, &'static str)> {
        match self {
            Self::V1(hierarchies) => {
                Some((hierarchies.freezer.as_ref()?.join("freezer.state"), "FROZEN", "THAWED"))
            }
            Self::V2(directory) => Some((directory.join("cgroup.freeze"), "1", "0")),
        }
    }

    /// Stops every member until [`Self::thaw`].
    ///
    /// # Errors
    /// A member has not stopped within the limit, or cannot be stopped; then all of them run.
    pub async fn freeze_until_thaw(&self) -> io::Result<()> {
        let group = self.freeze().await;
        match group {
            Some(mut group) if self.freeze_state() == FreezeState::Frozen => {
                group.state = None;
                Ok(())
            }
            _ => Err(io::Error::other("cannot freeze its processes")),
        }
    }

    /// Lets every member run, no matter what froze them. A missing freezer is no error.
    ///
    /// # Errors
    /// The kernel does not take it.
    pub fn thaw(&self) -> io::Result<()> {
        self.freezer().map_or(Ok(()), |(state, _, thawed)| at_once::write(state, thawed))
    }

    /// Keeps the members from forking, so that a list of them is complete. `None` if the container has no freezer of
    /// its own.
    ///
    /// Waits, within a limit, until the last member is frozen: one in the middle of a fork still makes its child.
    pub(super) async fn freeze(&self) -> Option<FrozenGroup> {
        let (path, frozen, thawed) = self.freezer()?;
        // Never freeze the shim itself: it could not thaw again.
        if Members::below(path.parent()?).pids.contains(&nix::unistd::getpid()) {
            return None;
        }
        let cannot = |error: io::Error| {
            debug!(%error, state = %path.display(), "cannot freeze the cgroup: its processes are signalled while they run");
        };
        let state = at_once::open(&path, File::options().write(true));
        let state = state.and_then(|state| state.write_all_at(frozen.as_bytes(), 0).map(|()| state));
        let state = state.map_err(cannot).ok()?;
        let group = FrozenGroup { state: Some(state), path: path.clone(), thawed };
        let deadline = Instant::now() + FREEZE_LIMIT;
        while self.freeze_state() != FreezeState::Frozen && Instant::now() < deadline {
            tokio::time::sleep(FREEZE_POLL).await;
            // v1 does not freeze members that the write before missed.
            if let Err(error) = group.write(frozen) {
                cannot(error);
                break;
            }
        }
        Some(group)
    }
}

impl FrozenGroup {
    fn write(&self, text: &str) -> io::Result<()> {
        self.state.as_ref().map_or(Ok(()), |state| state.write_all_at(text.as_bytes(), 0))
    }
}

impl Drop for FrozenGroup {
    fn drop(&mut self) {
        if let Err(error) = self.write(self.thawed)
            && self.path.exists()
        {
            warn!(%error, state = %self.path.display(), "cannot thaw the cgroup that the shim froze: its processes stay frozen");
        }
    }
}
