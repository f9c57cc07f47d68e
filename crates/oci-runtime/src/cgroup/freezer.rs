//! A group that stands still while its members are being signalled.
//!
//! Owns the thaw: a group this module has frozen never stays frozen. Pausing a container for its user is the OCI
//! runtime's work, and thawing it where that fails.

use std::{collections::BTreeSet, fs, io, path::PathBuf, time::Duration};

use tokio::time::Instant;
use tracing::{debug, warn};

use super::{Cgroup, FreezeState, collect_pids};

/// What members get to come to a stop; one in uninterruptible sleep does not.
const FREEZE_LIMIT: Duration = Duration::from_millis(200);
const FREEZE_POLL: Duration = Duration::from_millis(1);

/// A frozen group; dropping it lets the members run, which for those with a deadly signal pending means to die.
#[derive(Debug)]
pub(super) struct FrozenGroup {
    state: PathBuf,
    thawed: &'static str,
}

impl Cgroup {
    /// The file that says whether the group stands still, and its words for yes and no.
    fn freezer(&self) -> Option<(PathBuf, &'static str, &'static str)> {
        match self {
            Self::V1(hierarchies) => {
                Some((hierarchies.freezer.as_ref()?.join("freezer.state"), "FROZEN", "THAWED"))
            }
            Self::V2(directory) => Some((directory.join("cgroup.freeze"), "1", "0")),
        }
    }

    /// Lets every member run, whoever froze them. No freezer is no error.
    pub(crate) fn thaw(&self) -> io::Result<()> {
        self.freezer().map_or(Ok(()), |(state, _, thawed)| fs::write(state, thawed))
    }

    /// Keeps the members from forking, so that a list of them is complete. `None` where there is no freezer of the
    /// container's own.
    ///
    /// Waits, within limits, until the last member stands still: one in the middle of a fork still makes its child.
    pub(super) async fn freeze(&self) -> Option<FrozenGroup> {
        let (state, frozen, thawed) = self.freezer()?;
        let mut members = BTreeSet::new();
        collect_pids(state.parent()?, &mut members);
        // Never the shim itself: it would not come back to thaw.
        if members.contains(&nix::unistd::getpid()) {
            return None;
        }
        let deadline = Instant::now() + FREEZE_LIMIT;
        let mut guard = None;
        loop {
            // v1 does not go on by itself to whoever was missed by the first write.
            if let Err(error) = fs::write(&state, frozen) {
                debug!(%error, state = %state.display(), "the group cannot be frozen");
                return guard;
            }
            guard.get_or_insert_with(|| FrozenGroup { state: state.clone(), thawed });
            if self.freeze_state() == FreezeState::Frozen || Instant::now() >= deadline {
                return guard;
            }
            tokio::time::sleep(FREEZE_POLL).await;
        }
    }
}

impl Drop for FrozenGroup {
    fn drop(&mut self) {
        if let Err(error) = fs::write(&self.state, self.thawed)
            && self.state.exists()
        {
            warn!(%error, state = %self.state.display(), "the group cannot be thawed");
        }
    }
}
