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

impl Status {
    /// What follows "it" in a refusal.
    #[must_use]
    pub fn in_words(self) -> &'static str {
        match self {
            Self::Created => "is not started",
            Self::Running => "is running",
            Self::Paused => "is paused",
            Self::Stopped => "has stopped",
        }
    }
}
