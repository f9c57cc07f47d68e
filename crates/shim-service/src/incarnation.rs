//! One process of a container's init, and what a create or a start of one leaves to the owner.
//!
//! Owns these types; `launch` makes them.

use std::rc::Rc;

use oci_runtime::cgroup::{Cgroup, OomWatch};
use oci_runtime::console::Console;
use oci_runtime::process::{ExecutableIdentity, Process};
use oci_runtime::reaper::ExitWatch;
use oci_runtime::stdio::{Attempt, ChildStdio, ConsoleStreams, HeldBack, Stdio, StreamMode, UnusedFifos};
use pod_lifecycle::{Failure, Outcome};

use crate::error::failure;
use crate::readiness::Readiness;

/// One process of a container's init, with what came with it.
#[derive(Debug)]
pub(crate) struct Incarnation {
    process: Rc<Process>,
    /// What it executed before its own program (U1).
    runtime_init: Option<ExecutableIdentity>,
    console: Option<Console>,
    /// For a gate that its program opens.
    readiness: Option<Rc<Readiness>>,
}

impl Incarnation {
    pub(crate) fn new(
        process: Process,
        runtime_init: Option<ExecutableIdentity>,
        console: Option<Console>,
    ) -> Self {
        Self { process: Rc::new(process), runtime_init, console, readiness: None }
    }

    pub(crate) fn process(&self) -> &Rc<Process> {
        &self.process
    }

    pub(crate) fn runtime_init(&self) -> Option<ExecutableIdentity> {
        self.runtime_init
    }

    pub(crate) fn console(&self) -> Option<&Console> {
        self.console.as_ref()
    }

    /// The terminal, to be closed.
    pub(crate) fn take_console(&mut self) -> Option<Console> {
        self.console.take()
    }

    /// Its gate waits for it to become ready.
    pub(crate) fn listen(&mut self, readiness: Rc<Readiness>) {
        self.readiness = Some(readiness);
    }

    pub(crate) fn readiness(&self) -> Option<&Rc<Readiness>> {
        self.readiness.as_ref()
    }
}

/// A new process of a container.
pub(crate) struct NewIncarnation {
    pub(crate) incarnation: Incarnation,
    /// For its container's stdio, now that it exists.
    pub(crate) held_back: HeldBack,
    pub(crate) cgroup: Option<Rc<Cgroup>>,
    pub(crate) exit: ExitWatch,
    pub(crate) oom: Option<OomWatch>,
    /// The limits that were applied to it beyond its spec.
    pub(crate) limits: Option<Rc<[u8]>>,
}

impl NewIncarnation {
    /// How the operation that made it ends.
    pub(crate) fn outcome(&self) -> Outcome {
        Outcome::Process { pid: self.incarnation.process.pid().as_raw().unsigned_abs() }
    }
}

/// The streams one incarnation is started with.
pub(crate) struct IncarnationStreams {
    pub(crate) child: ChildStdio,
    pub(crate) held_back: HeldBack,
    pub(crate) console: Option<ConsoleStreams>,
}

impl IncarnationStreams {
    pub(crate) fn of(stdio: &Stdio) -> Result<Self, Failure> {
        let console = console_streams(stdio)?;
        let Attempt { child, held_back } = stdio.attempt().map_err(failure)?;
        Ok(Self { child, held_back, console })
    }
}

pub(crate) fn console_streams(stdio: &Stdio) -> Result<Option<ConsoleStreams>, Failure> {
    match stdio.mode() {
        StreamMode::Terminal => stdio.console_streams().map(Some).map_err(failure),
        StreamMode::Streams => Ok(None),
    }
}

/// A first create that came to nothing.
pub(crate) struct FailedCreate {
    pub(crate) failure: Failure,
    /// For the next try.
    pub(crate) fifos: UnusedFifos,
}

impl From<Failure> for FailedCreate {
    fn from(failure: Failure) -> Self {
        Self { failure, fifos: UnusedFifos::default() }
    }
}

/// A started exec.
pub(crate) struct NewExec {
    pub(crate) stdio: Stdio,
    pub(crate) console: Option<Console>,
    pub(crate) process: Rc<Process>,
    pub(crate) exit: ExitWatch,
}
