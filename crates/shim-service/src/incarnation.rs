//! The init process of a container, which a restart in place replaces (R6), and what comes with a new one.
//!
//! Owns these types; `launch` makes them, and `resources` keeps the current one.

use std::rc::Rc;

use cgroups::{Cgroup, Guard, OomWatch};
use pod_lifecycle::{Failure, Outcome};
use processes::reaper::ExitWatch;
use processes::{ExecutableIdentity, Process};
use streams::head::{EndsOfTerminal, HeldBack, PendingAttempt, Streams, Terminal, UnusedFifos};

use crate::readiness::Readiness;

/// One init process of a container, with its terminal and its readiness.
#[derive(Debug)]
pub(crate) struct Incarnation {
    process: Rc<Process>,
    /// The OCI runtime's binary, which it executes before the container's program (U1).
    runtime_init: Option<ExecutableIdentity>,
    terminal: Option<Terminal>,
    /// For a gate that the program itself opens.
    readiness: Option<Rc<Readiness>>,
}

impl Incarnation {
    pub(crate) fn new(
        process: Process,
        runtime_init: Option<ExecutableIdentity>,
        terminal: Option<Terminal>,
    ) -> Self {
        Self { process: Rc::new(process), runtime_init, terminal, readiness: None }
    }

    pub(crate) fn process(&self) -> &Rc<Process> {
        &self.process
    }

    pub(crate) fn runtime_init(&self) -> Option<ExecutableIdentity> {
        self.runtime_init
    }

    pub(crate) fn terminal(&self) -> Option<&Terminal> {
        self.terminal.as_ref()
    }

    /// Its process has exited. Its terminal's output is read until the next incarnation or the Delete; its input ends here.
    pub(crate) fn exited(&mut self) {
        if let Some(terminal) = &self.terminal {
            terminal.end_input();
        }
    }

    /// The terminal, for the caller to close.
    pub(crate) fn take_terminal(&mut self) -> Option<Terminal> {
        self.terminal.take()
    }

    /// From now on its gate waits for this.
    pub(crate) fn listen(&mut self, readiness: Rc<Readiness>) {
        self.readiness = Some(readiness);
    }

    pub(crate) fn readiness(&self) -> Option<&Rc<Readiness>> {
        self.readiness.as_ref()
    }
}

/// A new init process of a container, and what the owner gets with it.
pub(crate) struct NewIncarnation {
    pub(crate) incarnation: Incarnation,
    /// What the container's stdio may begin to move, now that the process exists.
    pub(crate) held_back: HeldBack,
    /// What takes the place of the container's streams, whose hand is away (H1).
    pub(crate) streams: Option<Streams>,
    pub(crate) cgroup: Option<Rc<Cgroup>>,
    pub(crate) guard: Option<Guard>,
    pub(crate) exit: ExitWatch,
    pub(crate) oom: Option<OomWatch>,
    /// The limits that were applied to it beside those of its spec.
    pub(crate) limits: Option<Rc<[u8]>>,
}

impl NewIncarnation {
    /// The outcome of the operation that created it.
    pub(crate) fn outcome(&self) -> Outcome {
        Outcome::Process { pid: self.incarnation.process.pid().as_raw().unsigned_abs() }
    }
}

/// Where the last limits of a caller are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimitsAre {
    /// In the container's cgroup, and since then perhaps replaced there past the shim.
    Written,
    /// Only here: there was no process, or the runtime has not written them yet.
    Waiting,
}

/// What a container's next process gets from the one before (R6).
pub(crate) struct Legacy {
    /// The groups, and their path in the spec, where podshim can keep them.
    pub(crate) groups: Option<(String, Rc<Cgroup>)>,
    pub(crate) limits: Option<Rc<[u8]>>,
    pub(crate) limits_are: LimitsAre,
}

/// The streams that one incarnation is created with.
pub(crate) struct IncarnationStreams {
    pub(crate) attempt: PendingAttempt,
    pub(crate) terminal: Option<EndsOfTerminal>,
}

impl IncarnationStreams {
    pub(crate) fn of(streams: &Streams) -> Self {
        Self { attempt: streams.attempt(), terminal: streams.ends_of_terminal() }
    }
}

/// A create that failed.
pub(crate) struct FailedCreate {
    pub(crate) failure: Failure,
    /// For the next create of the same container.
    pub(crate) fifos: UnusedFifos,
}

impl From<Failure> for FailedCreate {
    fn from(failure: Failure) -> Self {
        Self { failure, fifos: UnusedFifos::default() }
    }
}

/// The new process of an exec, and what the owner gets with it.
pub(crate) struct NewExec {
    pub(crate) streams: Streams,
    pub(crate) terminal: Option<Terminal>,
    pub(crate) process: Rc<Process>,
    pub(crate) exit: ExitWatch,
}
