//! What callers see of a container or exec.
//!
//! Decides nothing: `questions::exit_codes` says which exit they see.

use crate::interface::exit::Exit;

/// What callers see of a container or exec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// The status.
    pub status: Status,
    /// Never 0 or a dead pid for a live container of a pod with a pause container (F13).
    pub pid: u32,
    /// The exit that callers see, once it is stopped.
    pub exit: Option<Exit>,
    /// Whether `pid` is a process of its own, not a stand-in or a process of the past.
    pub has_process: bool,
}

/// containerd's task statuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Created, not started.
    Created,
    /// Started.
    Running,
    /// Frozen.
    Paused,
    /// Exited.
    Stopped,
}
