//! The control groups of a container: where they are, their statistics, and which processes are in them.
//!
//! Reads the kernel's files directly, v1 (also hybrid) and v2. The OCI runtime makes, limits and removes the groups;
//! podshim removes only groups of which the runtime has no record (`abandoned`), and keeps them over a restart in place (`kept`).

#![cfg_attr(not(test), forbid(unsafe_code))]

pub mod abandoned;
mod driver;
mod entrance;
mod files;
mod freezer;
mod group;
mod guard;
mod kept;
mod kernel_log;
mod kill;
mod membership;
pub mod oom;
mod oom_score;
mod sums;
#[cfg(test)]
mod tests;
mod thaw;
pub mod v1;
pub mod v2;

pub use self::driver::CgroupDriver;
pub use entrance::Entrance;
pub use files::{CgroupMount, CgroupVersion, cgroup_mounts, is_unified};
pub use group::{Cgroup, FreezeState, Stats};
pub use guard::Guard;
pub use kept::{Hidden, KeptGroups};
pub use kill::KillOutcome;
pub use membership::Membership;
pub use oom::OomWatch;
