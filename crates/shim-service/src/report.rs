//! What the owner's tasks report to it: the ends of operations, exits, OOM kills, failed updates.
//!
//! Owns these types alone. A task may never change the owner's state: it reports, and the loop (`drive`) does the rest.

use std::rc::Rc;

use nix::unistd::Pid;
use pod_lifecycle::{ContainerId, ExecId, Failure, OpId, Outcome, Target};
use streams::head::{Streams, UnusedFifos};
use tokio::sync::mpsc;

use crate::command::Answer;
use crate::incarnation::{FailedCreate, NewExec, NewIncarnation};

/// Where tasks send their reports. Unbounded: each report ends something that the owner itself began.
pub(crate) type ReportSender = mpsc::UnboundedSender<Report>;

/// What a task of the owner reports.
pub(crate) enum Report {
    Completed(Completion),
    Exited {
        target: Target,
        exit: processes::reaper::Exit,
    },
    OutOfMemory {
        container: ContainerId,
    },
    Updated {
        container: ContainerId,
        limits: Rc<[u8]>,
    },
    NotUpdated(Box<FailedUpdate>),
    /// The pod has given up an operation, which may go on for a while (T10).
    GivenUp {
        op: OpId,
    },
}

impl Report {
    /// What `busy` calls the handling of it.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Completed(_) | Self::GivenUp { .. } => "the end of an operation",
            Self::Exited { .. } => "an exit",
            Self::OutOfMemory { .. } | Self::Updated { .. } | Self::NotUpdated { .. } => {
                "a container's limits"
            }
        }
    }
}

/// What an operation leaves to the owner beside its outcome.
pub(crate) enum OperationResult {
    Nothing,
    /// The container's open streams. A completed init that is created once more has them too, without a process.
    Streams(Box<Streams>),
    /// A container's first process.
    Created(Box<(Streams, NewIncarnation)>),
    /// A container's next process.
    Recreated(Box<NewIncarnation>),
    /// An exec's process.
    Exec(ExecId, Box<NewExec>),
    /// The create failed and was undone. Its fifos stay open for the next create.
    CreateFailed(UnusedFifos),
    /// The container is deleted.
    Removed(Removal),
    /// The exec is deleted.
    RemovedExec(ExecId),
}

/// How much of a container its delete has removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Removal {
    Complete,
    /// Its rootfs could not be unmounted: the next Delete tries again.
    Mounted,
}

/// The end of an operation.
pub(crate) struct Completion {
    pub(crate) op: OpId,
    pub(crate) container: ContainerId,
    pub(crate) outcome: Outcome,
    pub(crate) result: OperationResult,
}

/// An Update that the OCI runtime could not apply.
pub(crate) struct FailedUpdate {
    pub(crate) container: ContainerId,
    /// The process that it was for.
    pub(crate) pid: Option<Pid>,
    pub(crate) limits: Rc<[u8]>,
    /// The limits that held before.
    pub(crate) before: Option<Rc<[u8]>>,
    pub(crate) failure: Failure,
    pub(crate) answer: Answer<()>,
}

/// How an operation reports its end.
pub(crate) struct CompletionReporter {
    op: OpId,
    container: ContainerId,
    reports: ReportSender,
}

impl CompletionReporter {
    pub(crate) fn new(op: OpId, container: ContainerId, reports: ReportSender) -> Self {
        Self { op, container, reports }
    }

    pub(crate) fn op(&self) -> OpId {
        self.op
    }

    pub(crate) fn container(&self) -> &ContainerId {
        &self.container
    }

    pub(crate) fn finish(self, outcome: Outcome, result: OperationResult) {
        let Self { op, container, reports } = self;
        // It fails if the owner has ended: no report is read any more.
        let _ = reports.send(Report::Completed(Completion { op, container, outcome, result }));
    }

    pub(crate) fn fail(self, failure: Failure) {
        self.finish(Outcome::Failed(failure), OperationResult::Nothing);
    }

    pub(crate) fn fail_create(self, failed: FailedCreate) {
        self.finish(Outcome::Failed(failed.failure), OperationResult::CreateFailed(failed.fifos));
    }

    /// Runs an operation that leaves nothing to the owner.
    pub(crate) fn spawn(self, work: impl Future<Output = Result<(), Failure>> + 'static) {
        tokio::task::spawn_local(async move {
            match work.await {
                Ok(()) => self.finish(Outcome::Ok, OperationResult::Nothing),
                Err(failure) => self.fail(failure),
            }
        });
    }
}
