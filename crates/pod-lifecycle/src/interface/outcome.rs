//! How requests and operations fail: the kinds that containerd knows, in words that a user can act on.
//!
//! Decides nothing: who refuses what is `handlers`.

/// The kinds of refusal that containerd distinguishes (CONTRACT §9).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// No such container or exec, or its process has finished.
    NotFound,
    /// The id is taken.
    AlreadyExists,
    /// Not in this state.
    FailedPrecondition,
    /// The request itself is wrong.
    InvalidArgument,
    /// Not served.
    Unimplemented,
    /// Something failed underneath.
    Internal,
    /// It took too long.
    DeadlineExceeded,
}

/// A refusal, in words that a user can act on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// Which kind of error the caller gets.
    pub kind: RefusalKind,
    /// Names the container and the reason.
    pub message: String,
}

impl Refusal {
    pub(crate) fn new(kind: RefusalKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into() }
    }
    pub(crate) fn not_found(message: impl Into<String>) -> Self {
        Self::new(RefusalKind::NotFound, message)
    }
    pub(crate) fn precondition(message: impl Into<String>) -> Self {
        Self::new(RefusalKind::FailedPrecondition, message)
    }
}

/// How an operation ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It did what it should.
    Ok,
    /// It made a process (Create, StartExec).
    Process {
        /// Its pid in the shim's namespace.
        pid: u32,
    },
    /// It failed.
    Failed(Failure),
}

/// Why an operation failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What the user reads: the runtime's own text.
    pub message: String,
    /// Which kind of error the caller gets.
    pub kind: RefusalKind,
}
