//! What the owner holds for an exec, from its registration to its removal: its streams, its process, its terminal.
//!
//! Owns these and how they change together; each change is a method that names what has happened.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use oci_runtime::console::{Console, TerminalSize};
use oci_runtime::process::Process;
use oci_runtime::stdio::Stdio;

use crate::details::ExecDetails;

/// How long another process may hold an exec's terminal open after the exit of the exec's own.
const LAST_TERMINAL_OUTPUT: Duration = Duration::from_millis(500);

/// One exec.
#[derive(Debug)]
pub(crate) struct ExecResources {
    details: Rc<ExecDetails>,
    stdio: Option<Stdio>,
    process: Option<Rc<Process>>,
    console: Option<Console>,
    size: Option<TerminalSize>,
}

impl ExecResources {
    pub(crate) fn new(details: ExecDetails) -> Self {
        Self { details: Rc::new(details), stdio: None, process: None, console: None, size: None }
    }

    pub(crate) fn details(&self) -> &ExecDetails {
        &self.details
    }

    pub(crate) fn process(&self) -> Option<&Rc<Process>> {
        self.process.as_ref()
    }

    /// Its start begins. A terminal size that was set before is ignored, as in the runc shim: the process may bring its own
    /// (`consoleSize`). One that is set from now on is applied as soon as there is a terminal.
    pub(crate) fn start_begins(&mut self) -> Rc<ExecDetails> {
        self.size = None;
        self.details.clone()
    }

    /// Its process runs.
    ///
    /// # Errors
    /// The terminal size that was set meanwhile cannot be applied.
    pub(crate) fn started(
        &mut self,
        stdio: Stdio,
        console: Option<Console>,
        process: Rc<Process>,
    ) -> io::Result<()> {
        (self.stdio, self.console, self.process) = (Some(stdio), console, Some(process));
        self.set_size()
    }

    pub(crate) fn resize(&mut self, size: TerminalSize) -> io::Result<()> {
        self.size = Some(size);
        self.set_size()
    }

    fn set_size(&self) -> io::Result<()> {
        match (&self.console, self.size) {
            (Some(console), Some(size)) => console.resize(size),
            _ => Ok(()),
        }
    }

    pub(crate) fn close_stdin(&mut self) {
        if let Some(stdio) = &mut self.stdio {
            stdio.close_stdin();
        }
    }

    /// Its process has exited, and its output ends. What has to be answered until its Delete is the core's; the descriptors go now,
    /// or when the client has read the rest: a client may never delete what it has run (D8).
    pub(crate) fn exited(&mut self) {
        // Before stdin ends (D4). CONTRACT §7: a terminal is closed at the exit, even if another process still holds it.
        if let Some(console) = &mut self.console {
            console.end_input();
            console.end_output_within(LAST_TERMINAL_OUTPUT);
        }
        if let Some(stdio) = &mut self.stdio {
            stdio.finish_output();
            stdio.close_when_read();
        }
        if let Some(process) = &self.process {
            self.process = Some(Rc::new(Process::exited(process.pid())));
        }
    }

    /// Its streams, for the caller to end: it is being removed.
    pub(crate) fn take_streams(&mut self) -> (Option<Console>, Option<Stdio>) {
        (self.console.take(), self.stdio.take())
    }
}
