//! The three streams of a container or exec, from Create to Delete.

use std::fs::File;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tracing::debug;

use super::endpoint::{Addresses, OutputAddresses, ReaderWait};
use super::error::{StdioError, StreamName};
use super::kept_readable::KeptReadable;
use super::line_end::{OpenLine, end_line_of_file};
use super::logger::LoggerPipes;
use super::paths::{StdioPaths, StreamMode, StreamOwner};
use super::stream::{Input, Output};

#[cfg(test)]
mod tests;

/// How long containerd gets to open its side of a fifo (containerd's runc shim: process/init.go, 30 s).
pub const READER_LIMIT: Duration = Duration::from_secs(30);

/// The non-blocking ends between which a console copies; a new pair for each incarnation.
#[derive(Debug)]
pub struct ConsoleStreams {
    /// Read end of the stdin fifo.
    pub stdin: Option<File>,
    /// Write end of stdout.
    pub stdout: Option<File>,
    /// Where stdout's last line has got to.
    pub(crate) line: Arc<OpenLine>,
}

/// The open streams of one container or exec, kept from Create to Delete.
///
/// Dropping it cuts everything that still moves.
#[derive(Debug, Default)]
pub struct Stdio {
    pub(super) mode: StreamMode,
    pub(super) owner: StreamOwner,
    pub(super) stdin: Option<Input>,
    pub(super) stdout: Option<Output>,
    pub(super) stderr: Option<Output>,
    pub(super) logger: Option<LoggerPipes>,
}

impl Stdio {
    /// Opens the files that `paths` names and makes the process's ends, which it gives to `owner`. Fifos are only
    /// checked here; [`Self::connect`] opens them.
    ///
    /// # Errors
    /// An address that podshim does not serve, or a file that cannot be opened.
    pub fn open(paths: &StdioPaths, owner: StreamOwner) -> Result<Self, StdioError> {
        let mode = paths.mode;
        // Refuse unsupported addresses before anything is opened.
        let Addresses { stdin, output } = Addresses::parse(paths)?;
        let stdin = stdin.map(|address| Input::open(address, mode, owner)).transpose()?;
        let (stdout, stderr, logger) = match output {
            OutputAddresses::Apart { stdout, stderr } => {
                let stdout = Output::open(StreamName::Stdout, stdout, mode, owner)?;
                (stdout, Output::open(StreamName::Stderr, stderr, mode, owner)?, None)
            }
            OutputAddresses::Logger(_) => {
                let (logger, [stdout, stderr]) = LoggerPipes::make()
                    .map_err(|source| StdioError::ProcessEnd { stream: StreamName::Stdout, source })?;
                let stdout = Output::to_logger(StreamName::Stdout, stdout, owner)?;
                // With a terminal no process writes to it; it ends together with stdout.
                let stderr = Output::to_logger(StreamName::Stderr, stderr, owner)?;
                (Some(stdout), Some(stderr), Some(logger))
            }
        };
        Ok(Self { mode, owner, stdin, stdout, stderr, logger })
    }

    /// Opens containerd's fifos. Call it before [`Self::accept`]; later calls do nothing.
    ///
    /// Waits up to [`READER_LIMIT`] for containerd's side of the output fifos. Cancel-safe: the set can be dropped.
    ///
    /// # Errors
    /// containerd does not open its side in time, or a fifo cannot be opened.
    pub async fn connect(&mut self) -> Result<(), StdioError> {
        self.connect_within(READER_LIMIT).await
    }

    pub(crate) async fn connect_within(&mut self, limit: Duration) -> Result<(), StdioError> {
        // One limit for both streams, as in containerd's shim.
        let wait = ReaderWait::starting_now(limit);
        if let Some(stdin) = &mut self.stdin {
            stdin.connect()?;
        }
        for output in [&mut self.stdout, &mut self.stderr].into_iter().flatten() {
            output.connect(wait).await?;
        }
        Ok(())
    }

    /// What the logging program reads, for [`Logger::start`](super::Logger::start), once.
    pub(crate) fn take_loggers_input(&mut self) -> Option<[File; 2]> {
        self.logger.as_mut()?.take_input()
    }

    /// Non-blocking ends for the console of the next incarnation, once connected; none for plain streams.
    ///
    /// # Errors
    /// The ends cannot be copied.
    pub fn console_streams(&self) -> io::Result<ConsoleStreams> {
        if self.mode == StreamMode::Streams {
            return Ok(ConsoleStreams { stdin: None, stdout: None, line: Arc::default() });
        }
        let stdin = self.stdin.as_ref().and_then(|input| input.reader.as_ref());
        let stdin = stdin.map(File::try_clone).transpose()?;
        let stdout = self.stdout.as_ref().and_then(|output| output.writer.as_ref());
        let line = self.stdout.as_ref().map(|output| output.line.clone()).unwrap_or_default();
        Ok(ConsoleStreams { stdin, stdout: stdout.map(File::try_clone).transpose()?, line })
    }

    /// CloseIO: the process sees EOF on stdin once containerd has closed its side too. Idempotent.
    pub fn close_stdin(&mut self) {
        if let Some(input) = &mut self.stdin {
            input.writer = None;
        }
    }

    /// The final exit: drops the shim's write ends and stdin, so that containerd sees EOF when the last process that
    /// holds the stream is gone, or at once if nothing was ever moved. Unread output stays readable until the set is
    /// dropped. Idempotent.
    pub fn finish_output(&mut self) {
        self.stdin = None;
        for output in [&mut self.stdout, &mut self.stderr].into_iter().flatten() {
            output.writer = None;
            if let Some(pipe) = &mut output.pipe {
                pipe.process_end = None;
                pipe.movement.give_up_unstarted();
            }
        }
    }

    /// After [`Self::finish_output`]: closes everything as soon as containerd has read what was written, also if the set is never
    /// dropped.
    pub fn close_when_read(&mut self) {
        for output in [&mut self.stdout, &mut self.stderr].into_iter().flatten() {
            if let Some(reader) = output.keep_alive.take() {
                output.kept_readable = Some(KeptReadable::until_read(reader));
            }
        }
    }

    /// Finishes the output and waits until containerd has got all of it, for at most `limit`; then cuts it. Afterwards
    /// containerd sees EOF even if a background process still holds a stream (CONTRACT §7).
    ///
    /// Only bytes that containerd did not read in time and that do not fit into its fifo are lost. A file and the
    /// output of a console are not waited for. Cancel-safe: dropping the future cuts nothing.
    pub async fn drain(&mut self, limit: Duration) {
        self.finish_output();
        let deadline = Instant::now() + limit;
        for output in [&mut self.stdout, &mut self.stderr].into_iter().flatten() {
            // First what goes into the pipe, then the pipe itself.
            for held_back in &mut output.held_back {
                held_back.end_by(deadline).await;
            }
            output.held_back.clear();
            if let Some(pipe) = &mut output.pipe {
                pipe.movement.end_by(deadline).await;
            }
        }
    }

    /// Writes one `podshim: ` line to the container's own stderr, or to stdout if that is its only stream (rules U7,
    /// J9). It begins on a line of its own (R6).
    ///
    /// Never blocks and never fails: the line is dropped if the stream is full, finished or absent. It is cut to
    /// PIPE_BUF bytes; up to that length a fifo write is atomic and cannot tear the container's output.
    pub fn write_line(&self, text: &str) {
        let outputs = [&self.stderr, &self.stdout].into_iter().flatten();
        let Some((output, writer)) =
            outputs.filter_map(|output| Some((output, output.writer.as_ref()?))).next()
        else {
            return;
        };
        let new_line = self.new_line();
        let first = if output.line.is_open() { new_line } else { "" };
        if output.pipe.is_none() {
            end_line_of_file(writer);
        }
        let one_line: String =
            text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect();
        let mut line = format!("{first}podshim: {one_line}");
        line.truncate(line.floor_char_boundary(libc::PIPE_BUF - new_line.len()));
        line.push_str(new_line);
        write_or_drop(writer, &output.line, &line);
    }

    /// Another process is to write where the terminal's output goes.
    pub(super) fn end_terminals_line(&self) {
        if let Some(output) = self.stdout.as_ref().filter(|output| output.line.is_open())
            && let Some(writer) = &output.writer
        {
            write_or_drop(writer, &output.line, self.new_line());
        }
    }

    fn new_line(&self) -> &'static str {
        match self.mode {
            StreamMode::Streams => "\n",
            // A terminal in raw mode does not turn a line feed into a new line.
            StreamMode::Terminal => "\r\n",
        }
    }
}

/// Non-blocking: this open file description is the shim's alone.
fn write_or_drop(mut writer: &File, open: &OpenLine, text: &str) {
    match writer.write_all(text.as_bytes()) {
        Ok(()) => open.wrote(text.as_bytes()),
        Err(error) => debug!(%error, text, "dropped a line for the container's log"),
    }
}
