//! What the owner holds for an exec, from its registration to its removal: its streams, its process, its terminal.
//!
//! Owns these and how they change together; each change is a method that names what has happened.

use std::rc::Rc;
use std::time::Duration;

use processes::Process;
use streams::console::TerminalSize;
use streams::head::{Streams, Terminal};

use crate::details::ExecDetails;

/// How long another process may hold an exec's terminal open after the exit of the exec's own.
const LAST_TERMINAL_OUTPUT: Duration = Duration::from_millis(500);

/// One exec.
#[derive(Debug)]
pub(crate) struct ExecResources {
    details: Rc<ExecDetails>,
    streams: Option<Streams>,
    process: Option<Rc<Process>>,
    terminal: Option<Terminal>,
    size: Option<TerminalSize>,
}

impl ExecResources {
    pub(crate) fn new(details: ExecDetails) -> Self {
        Self { details: Rc::new(details), streams: None, process: None, terminal: None, size: None }
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

    /// Its process runs. The terminal has the size that was set meanwhile.
    pub(crate) fn started(&mut self, streams: Streams, terminal: Option<Terminal>, process: Rc<Process>) {
        (self.streams, self.terminal, self.process) = (Some(streams), terminal, Some(process));
        self.set_size();
    }

    pub(crate) fn resize(&mut self, size: TerminalSize) {
        self.size = Some(size);
        self.set_size();
    }

    fn set_size(&self) {
        if let (Some(terminal), Some(size)) = (&self.terminal, self.size) {
            terminal.resize(size);
        }
    }

    pub(crate) fn close_stdin(&mut self) {
        if let Some(streams) = &self.streams {
            streams.close_stdin();
        }
    }

    /// Its process has exited, and its output ends. What has to be answered until its Delete is the core's; the descriptors go now,
    /// or when the client has read the rest: a client may never delete what it has run (D8).
    pub(crate) fn exited(&mut self) {
        // Before stdin ends (D4). CONTRACT §7: a terminal is closed at the exit, even if another process still holds it.
        if let Some(terminal) = &self.terminal {
            terminal.end_input();
            terminal.end_output_within(LAST_TERMINAL_OUTPUT);
        }
        if let Some(streams) = &self.streams {
            streams.finish_output();
            streams.close_when_read();
        }
        if let Some(process) = &self.process {
            self.process = Some(Rc::new(Process::exited(process.pid())));
        }
    }

    /// Its streams, for the caller to end: it is being removed.
    pub(crate) fn take_streams(&mut self) -> (Option<Terminal>, Option<Streams>) {
        (self.terminal.take(), self.streams.take())
    }
}
