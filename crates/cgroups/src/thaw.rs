//! Lets a container act on a signal that it must act on (K17): thaws its group and every group inside of it, whatever has
//! frozen them.
//!
//! Never touches a group above the container's, nor one that the shim is in. A container that may make groups can make thousands:
//! the walk through them has a thread of its own.

#[cfg(test)]
mod tests;

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::getpid;
use threads::{at_once, helper_thread};
use tracing::{info, warn};

use super::files::Directory;
use super::group::{Cgroup, members_of};

/// The pauses between two looks at a group whose signalled process is still there: what froze it may do so again.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);
/// How many looks one signal is worth, ten seconds in all. A caller that waits longer signals again.
const ATTEMPTS: u32 = 12;

/// The freezer of one group, by the version of its hierarchy.
#[derive(Debug, Clone)]
struct Freezer {
    directory: PathBuf,
    /// Contains 1 if this group is to be frozen, and not only one above it.
    wanted: &'static str,
    state: &'static str,
    thawed: &'static str,
}

impl Cgroup {
    /// Thaws the group and those inside of it, again and again while `is_there` says that the signalled process is, within a
    /// limit. Call it after the signal: what is thawed must not run on without it.
    pub async fn thaw_while(&self, is_there: impl Fn() -> bool) {
        let mut pause = FIRST_PAUSE;
        for _ in 0..ATTEMPTS {
            self.thaw_all().await;
            if !is_there() {
                return;
            }
            tokio::time::sleep(pause).await;
            if !is_there() {
                return;
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Thaws them once. A failure is logged: the process then stays until its group is thawed.
    pub(super) async fn thaw_all(&self) {
        let Some(freezer) = self.subtree_freezer().filter(Freezer::may_be_frozen) else { return };
        let directory = freezer.directory.clone();
        match helper_thread::run("thaw", move || freezer.thaw_all()).await {
            Ok(0) => {}
            Ok(groups) => info!(directory = %directory.display(), groups, "thawed for a signal"),
            Err(error) => {
                warn!(%error, directory = %directory.display(), "cannot thaw a frozen cgroup: its processes do not act on their signal");
            }
        }
    }

    fn subtree_freezer(&self) -> Option<Freezer> {
        let freezer = match self {
            Self::V1(hierarchies) => Freezer {
                directory: hierarchies.freezer.clone()?,
                wanted: "freezer.self_freezing",
                state: "freezer.state",
                thawed: "THAWED",
            },
            Self::V2(directory) => Freezer {
                directory: directory.clone(),
                wanted: "cgroup.freeze",
                state: "cgroup.freeze",
                thawed: "0",
            },
        };
        Some(freezer)
    }
}

impl Freezer {
    /// Whether the walk could find anything: the group is to be frozen, or has groups inside. Two calls of the kernel's, for each
    /// SIGKILL.
    fn may_be_frozen(&self) -> bool {
        self.is_wanted(&self.directory)
            // One for each group inside, beside the two that each directory has.
            || fs::symlink_metadata(&self.directory).is_ok_and(|group| group.nlink() > 2)
    }

    fn is_wanted(&self, group: &Path) -> bool {
        match Directory::open(group).map(|group| group.read(self.wanted)) {
            Some(Ok(text)) => text.trim() == "1",
            // A process has a lease on it: the group may be frozen, and to thaw one that is not changes nothing.
            Some(Err(error)) => error.kind() == io::ErrorKind::WouldBlock,
            None => false,
        }
    }

    /// Returns how many groups were frozen, or the first error after it has tried all.
    fn thaw_all(&self) -> io::Result<u32> {
        // A runtime that makes no groups leaves the container in the shim's.
        if self.holds_the_shim() {
            return Ok(0);
        }
        let (mut thawed, mut failed) = (0, None);
        let mut waiting = vec![self.directory.clone()];
        while let Some(group) = waiting.pop() {
            if self.is_wanted(&group) {
                match at_once::write(group.join(self.state), self.thawed) {
                    Ok(()) => thawed += 1,
                    // It may be gone by now.
                    Err(error) if group.exists() => failed = failed.or(Some(error)),
                    Err(_) => {}
                }
            }
            let inside = fs::read_dir(&group).into_iter().flatten().flatten();
            waiting.extend(
                inside
                    .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
                    .map(|entry| entry.path()),
            );
        }
        failed.map_or(Ok(thawed), Err)
    }

    fn holds_the_shim(&self) -> bool {
        let own = Cgroup::of_pid(getpid()).ok().and_then(|own| own.subtree_freezer());
        own.is_some_and(|own| own.directory.starts_with(&self.directory))
            || members_of(&self.directory).is_ok_and(|members| members.contains(&getpid()))
    }
}
