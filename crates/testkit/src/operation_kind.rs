//! The kinds of operations, by their words in scenarios. Owns nothing of what they do.

use std::fmt;

use pod_lifecycle::Operation;

/// The kind of an operation, for scripts that slow it down or make it fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum OperationKind {
    /// Create, also of a completed init.
    Create,
    /// Start.
    Start,
    /// Restart in place.
    Recreate,
    /// The kill of all remaining processes.
    KillRemaining,
    /// The final delete.
    Remove,
    /// Freeze.
    Pause,
    /// Thaw.
    Resume,
    /// Start of an exec.
    StartExec,
    /// A checkpoint.
    Checkpoint,
    /// A restore from one.
    Restore,
    /// Removal of an exec.
    RemoveExec,
    /// A gate's check.
    Check,
    /// A hook.
    RunHook,
}

const KINDS: [(&str, OperationKind); 13] = [
    ("checkpoint", OperationKind::Checkpoint),
    ("restore", OperationKind::Restore),
    ("create", OperationKind::Create),
    ("start", OperationKind::Start),
    ("recreate", OperationKind::Recreate),
    ("kill-remaining", OperationKind::KillRemaining),
    ("remove", OperationKind::Remove),
    ("pause", OperationKind::Pause),
    ("resume", OperationKind::Resume),
    ("start-exec", OperationKind::StartExec),
    ("remove-exec", OperationKind::RemoveExec),
    ("check", OperationKind::Check),
    ("run-hook", OperationKind::RunHook),
];

impl OperationKind {
    /// The kind of an operation.
    pub fn of(operation: &Operation) -> Self {
        match operation {
            Operation::Create | Operation::CreateCompleted | Operation::PrepareRestore => Self::Create,
            Operation::Checkpoint(_) => Self::Checkpoint,
            Operation::Restore => Self::Restore,
            Operation::Start => Self::Start,
            Operation::Recreate => Self::Recreate,
            Operation::KillRemaining => Self::KillRemaining,
            Operation::Remove => Self::Remove,
            Operation::Pause => Self::Pause,
            Operation::Resume => Self::Resume,
            Operation::StartExec(_) => Self::StartExec,
            Operation::RemoveExec(_) => Self::RemoveExec,
            Operation::Check(_) => Self::Check,
            Operation::RunHook { .. } => Self::RunHook,
        }
    }

    /// Whether the driver may report a failure although the operation did its work. An operation that makes a process
    /// undoes it first, and after a failed start or freeze the driver asks the kernel for the result.
    pub fn can_be_lost(self) -> bool {
        matches!(self, Self::KillRemaining | Self::Remove | Self::RemoveExec | Self::Checkpoint)
    }

    /// Whether a runtime makes a process in it, for which podshim gives it two minutes.
    pub(crate) fn makes_processes(self) -> bool {
        matches!(self, Self::Create | Self::Recreate | Self::Start | Self::StartExec)
    }

    /// All kinds.
    pub fn all() -> impl Iterator<Item = Self> {
        KINDS.iter().map(|(_, kind)| *kind)
    }

    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let known = KINDS.iter().find(|(word, _)| *word == text).map(|(_, kind)| *kind);
        known.ok_or_else(|| format!("{text:?} is no operation"))
    }
}

impl fmt::Display for OperationKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = KINDS.iter().find(|(_, kind)| kind == self).map_or("", |(word, _)| *word);
        f.write_str(word)
    }
}
