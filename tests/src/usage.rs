//! What a shim's process holds: memory, descriptors, watches, threads. Compares two moments of one shim; what a shim may
//! cost at all is held by `budgets.rs` and measured by `hack/bench`.

use anyhow::{Context, Result};

use crate::durations::SOON;
use crate::instance::status_number;
use crate::wait;

/// How much more memory a shim may hold after a load than before it, in kB: what its allocator keeps.
const GROWTH: u64 = 1024;

/// The resources that a shim holds. Memory is in kB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Open descriptors.
    pub descriptors: usize,
    /// inotify watches.
    pub watches: usize,
    /// Threads.
    pub threads: u64,
    /// What is in memory of it, also of the code that it shares.
    pub resident: u64,
    /// What it has written and no other process shares.
    pub private: u64,
}

impl Usage {
    /// What it holds now.
    ///
    /// # Errors
    /// If there is no such process.
    pub fn of(shim: libc::pid_t) -> Result<Self> {
        let mut watches = 0;
        let mut descriptors = 0;
        for entry in std::fs::read_dir(format!("/proc/{shim}/fdinfo"))?.flatten() {
            descriptors += 1;
            let info = std::fs::read_to_string(entry.path()).unwrap_or_default();
            watches += info.lines().filter(|line| line.starts_with("inotify ")).count();
        }
        let (threads, resident) = (status_number(shim, "Threads")?, status_number(shim, "VmRSS")?);
        Ok(Self { descriptors, watches, threads, resident, private: private(shim)? })
    }

    /// Whether a shim that held `before` holds no more now; its memory may have grown by what its allocator keeps.
    #[must_use]
    pub fn is_no_more_than(self, before: Self) -> bool {
        self.descriptors <= before.descriptors
            && self.watches <= before.watches
            && self.threads <= before.threads
            && self.resident <= before.resident + GROWTH
    }

    /// Waits until a shim holds no more than this, and returns what it holds then.
    ///
    /// # Errors
    /// If it still holds more after a while.
    pub async fn wait_regained(self, shim: libc::pid_t) -> Result<Self> {
        let regained = wait::until("the shim to hold no more than before", SOON, async || {
            Ok(Some(Self::of(shim)?).filter(|now| now.is_no_more_than(self)))
        });
        let now = regained.await.with_context(|| format!("before {self:?}, now {:?}", Self::of(shim)))?;
        println!("before {self:?}, after {now:?}");
        Ok(now)
    }
}

/// The memory that a process has written and that no other one shares. (Its code is shared as long as another shim
/// runs.)
fn private(pid: libc::pid_t) -> Result<u64> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("Private_Dirty:"));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.with_context(|| format!("no private memory of process {pid} in {text}"))
}
