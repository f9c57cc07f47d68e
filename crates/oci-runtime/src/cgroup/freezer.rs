//! The v1 freezer, held while the members of a group are being signalled.
//!
//! Owns the thaw: a group this module has frozen never stays frozen. Pausing a container for its user is the OCI
//! runtime's work.

use std::{collections::BTreeSet, fs, path::PathBuf};

use tracing::{debug, warn};

use super::{collect_pids, v1};

/// A frozen group; dropping it lets the members run, which for those with a pending SIGKILL means to die.
#[derive(Debug)]
pub(super) struct FrozenGroup {
    state: PathBuf,
}

impl v1::Hierarchies {
    /// Keeps the members from forking. `None` where there is no freezer of the container's own.
    ///
    /// Returns before the last member stands still: one that is about to freeze cannot fork any more.
    pub(super) fn freeze_for_killing(&self) -> Option<FrozenGroup> {
        let directory = self.freezer.as_deref()?;
        let mut members = BTreeSet::new();
        collect_pids(directory, &mut members);
        // Never the shim itself: it would not come back to thaw.
        if members.contains(&nix::unistd::getpid()) {
            return None;
        }
        let state = directory.join("freezer.state");
        match fs::write(&state, "FROZEN") {
            Ok(()) => Some(FrozenGroup { state }),
            Err(error) => {
                debug!(%error, state = %state.display(), "the group cannot be frozen");
                None
            }
        }
    }
}

impl Drop for FrozenGroup {
    fn drop(&mut self) {
        if let Err(error) = fs::write(&self.state, "THAWED")
            && self.state.exists()
        {
            warn!(%error, state = %self.state.display(), "the group cannot be thawed");
        }
    }
}
