//! One exec: its streams, its process, its terminal. Owns these, from the exec's registration to its removal.

use std::io;
use std::rc::Rc;

use oci_runtime::console::{Console, TerminalSize};
use oci_runtime::process::Process;
use oci_runtime::stdio::Stdio;

use crate::details::ExecDetails;

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

    /// Its start begins. Like the runc shim, ignore a terminal size that was set before: the process may have its own
    /// (`consoleSize`). One that comes from now on is set when there is a terminal.
    pub(crate) fn start_begins(&mut self) -> Rc<ExecDetails> {
        self.size = None;
        self.details.clone()
    }

    /// Its process runs.
    ///
    /// # Errors
    /// The size that was asked for meanwhile cannot be set.
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

    /// Its process has exited: its output ends with it. Gives the terminal, to be closed.
    pub(crate) fn exited(&mut self) -> Option<Console> {
        if let Some(stdio) = &mut self.stdio {
            stdio.finish_output();
        }
        self.console.take()
    }

    /// The streams, to be ended for its removal.
    pub(crate) fn take_streams(&mut self) -> (Option<Console>, Option<Stdio>) {
        (self.console.take(), self.stdio.take())
    }
}
