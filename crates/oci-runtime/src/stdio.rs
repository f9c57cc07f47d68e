//! The standard streams of one container or exec: containerd's fifos and files, opened once and kept for every
//! incarnation of the process.
//!
//! Owns the shim's ends. It reads the data only for a gate that waits for a line (`lines`): a process gets an anonymous
//! pipe, and the kernel moves the data between that pipe and containerd's fifo (`mover`), or a logging program reads
//! the pipe (`logger`). A regular file goes to the process itself.
//!
//! Why a pipe, as in containerd's runc shim, and not the fifo itself:
//! * a background process that holds the stream must not block containerd, which waits for EOF before it deletes
//!   (CONTRACT §7): with a pipe in between, the shim can end the stream ([`Stdio::drain`]);
//! * what the OCI runtime writes to stderr when it fails to create is not output of the container: moving starts after
//!   its success ([`Stdio::accept`]);
//! * the reader of a fifo that was opened and closed again has seen EOF: the next try with the same fifo would wait for
//!   a reader that has gone ([`UnusedFifos`]). If the fifo is opened late, its reader may have gone meanwhile. So the
//!   caller decides when to open it ([`Stdio::connect`]);
//! * a security module may deny a container the label of a fifo in /run; an anonymous pipe has no label of its own.
//!
//! Further rules:
//! * a restart of containerd causes neither SIGPIPE nor loss: a read end of the shim's own keeps the fifo readable, so
//!   unread bytes stay in the fifo and then in the pipe, until the writer blocks;
//! * incarnations share the pipe, so between them containerd sees no EOF (rule R6);
//! * a program that makes its stream non-blocking must not pass that on to the next incarnation: each one gets an open
//!   file description of its own.

use std::{
    fs::File,
    io::{self, Write},
    time::Duration,
};

use nix::{fcntl::OFlag, unistd::pipe2};
use tokio::time::Instant;
use tracing::debug;

use crate::reaper::Reaper;

mod attempt;
mod endpoint;
mod error;
mod lines;
mod logger;
mod mover;
#[cfg(test)]
mod tests;
mod uri;

pub use attempt::{Attempt, ChildStdio, HeldBack, UnusedFifos};
use endpoint::{Address, Addresses, Fifo, OutputAddresses, ReaderWait, StreamTarget};
pub use error::{StdioError, StreamName};
pub(crate) use lines::Lines;
pub use lines::{LINE_LONGEST, LineWatch, LookPace, Piece, Watching};
use logger::Logger;
pub use logger::{LoggerError, LoggerIdentity};
use mover::Movement;

/// How long containerd gets to open its side of a fifo (containerd's runc shim: process/init.go, 30 s).
pub const READER_LIMIT: Duration = Duration::from_secs(30);

/// Whether the process has a terminal or plain streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StreamMode {
    /// stdin, stdout and stderr are streams of their own.
    #[default]
    Streams,
    /// A pty: stdin and stdout belong to the [`Console`](crate::console::Console), stderr is unused.
    Terminal,
}

/// The user and group that own the process's ends (options `IoUid` and `IoGid` of containerd).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StreamOwner {
    /// User id, if it is to be changed.
    pub user: Option<u32>,
    /// Group id, if it is to be changed.
    pub group: Option<u32>,
}

/// The strings of a Create or Exec request (CONTRACT §7); empty means none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StdioPaths {
    /// Standard input: a fifo.
    pub stdin: String,
    /// Standard output: a fifo path, `fifo://`, `file://`, `binary://` or `binary-v2://`.
    pub stdout: String,
    /// Standard error: a fifo path, `fifo://` or `file://`. If stdout is a file or a program, stderr goes there too.
    pub stderr: String,
    /// Terminal or streams.
    pub mode: StreamMode,
}

/// The non-blocking ends between which a console copies; a new pair for each incarnation.
#[derive(Debug)]
pub struct ConsoleStreams {
    /// Read end of the stdin fifo.
    pub stdin: Option<File>,
    /// Write end of stdout.
    pub stdout: Option<File>,
}

/// The open streams of one container or exec, kept from Create to Delete.
///
/// Dropping it cuts everything that still moves.
#[derive(Debug, Default)]
pub struct Stdio {
    mode: StreamMode,
    owner: StreamOwner,
    stdin: Option<Input>,
    stdout: Option<Output>,
    stderr: Option<Output>,
    logger: Option<Logger>,
}

#[derive(Debug)]
struct Input {
    // Until it is connected.
    fifo: Option<Fifo>,
    // None for files, which the process gets itself, and for terminals.
    pipe: Option<Pipe>,
    // A file for the process, or a connected fifo for the console.
    reader: Option<File>,
    // The write end of a connected fifo, until CloseIO.
    writer: Option<File>,
}

#[derive(Debug)]
struct Output {
    stream: StreamName,
    // Until it is connected.
    fifo: Option<Fifo>,
    // None before it is connected, and after the final exit.
    writer: Option<File>,
    // Only kept open: the fifo then always has a reader.
    keep_alive: Option<File>,
    // None for files and a logger's pipe, which the process gets itself, and for terminals.
    pipe: Option<Pipe>,
    // The stderr of incarnations that were made when the pipe was already in use.
    held_back: Vec<Movement>,
}

/// The pipe between the process and a fifo.
#[derive(Debug)]
struct Pipe {
    // None after the final exit.
    process_end: Option<File>,
    movement: Movement,
}

impl Pipe {
    /// From a fifo to the process.
    fn to_process(owner: StreamOwner) -> io::Result<Self> {
        let (reader, writer) = nonblocking_pipe()?;
        give_to(&reader, owner)?;
        Ok(Self { process_end: Some(reader), movement: Movement::Unconnected(writer) })
    }

    /// From the process to a fifo.
    fn from_process(owner: StreamOwner) -> io::Result<Self> {
        let (reader, writer) = nonblocking_pipe()?;
        give_to(&writer, owner)?;
        Ok(Self { process_end: Some(writer), movement: Movement::Unconnected(reader) })
    }
}

impl Input {
    fn open(address: Address, mode: StreamMode, owner: StreamOwner) -> Result<Self, StdioError> {
        let (fifo, reader) = match address.open_input()? {
            StreamTarget::Fifo(fifo) => (Some(fifo), None),
            StreamTarget::File(file) => (None, Some(file)),
        };
        let pipe = match mode {
            StreamMode::Streams if fifo.is_some() => Pipe::to_process(owner).map(Some),
            StreamMode::Streams | StreamMode::Terminal => Ok(None),
        };
        let pipe = pipe.map_err(|source| StdioError::ProcessEnd { stream: StreamName::Stdin, source })?;
        Ok(Self { fifo, pipe, reader, writer: None })
    }

    fn connect(&mut self) -> Result<(), StdioError> {
        let Some(fifo) = self.fifo.take() else { return Ok(()) };
        let (reader, writer) = fifo.open_to_read()?;
        match &mut self.pipe {
            Some(pipe) => pipe
                .movement
                .connect(|pipe| (reader, pipe))
                .map_err(|source| StdioError::ProcessEnd { stream: StreamName::Stdin, source })?,
            None => self.reader = Some(reader),
        }
        self.writer = Some(writer);
        Ok(())
    }

    /// What the process reads.
    fn process_end(&self) -> Option<&File> {
        match &self.pipe {
            Some(pipe) => pipe.process_end.as_ref(),
            None => self.reader.as_ref(),
        }
    }
}

impl Output {
    fn open(
        stream: StreamName,
        address: Option<Address>,
        mode: StreamMode,
        owner: StreamOwner,
    ) -> Result<Option<Self>, StdioError> {
        let Some(address) = address else { return Ok(None) };
        let process_end = |source| StdioError::ProcessEnd { stream, source };
        let mut output =
            Self { stream, fifo: None, writer: None, keep_alive: None, pipe: None, held_back: Vec::new() };
        match (address.open_output()?, mode) {
            (StreamTarget::Fifo(fifo), StreamMode::Streams) => {
                output.fifo = Some(fifo);
                output.pipe = Some(Pipe::from_process(owner).map_err(process_end)?);
            }
            (StreamTarget::Fifo(fifo), StreamMode::Terminal) => output.fifo = Some(fifo),
            (StreamTarget::File(file), mode) => {
                if mode == StreamMode::Streams {
                    give_to(&file, owner).map_err(process_end)?;
                }
                output.writer = Some(file);
            }
        }
        Ok(Some(output))
    }

    async fn connect(&mut self, wait: ReaderWait) -> Result<(), StdioError> {
        let Some(fifo) = self.fifo.take() else { return Ok(()) };
        let (writer, keep_alive) = fifo.open_to_write(wait).await?;
        if let Some(pipe) = &mut self.pipe {
            let sink = writer.try_clone();
            sink.and_then(|sink| pipe.movement.connect(|pipe| (pipe, sink)))
                .map_err(|source| StdioError::ProcessEnd { stream: self.stream, source })?;
        }
        (self.writer, self.keep_alive) = (Some(writer), Some(keep_alive));
        Ok(())
    }

    /// A pipe that a logging program reads.
    fn to_logger(stream: StreamName, writer: File, owner: StreamOwner) -> Result<Self, StdioError> {
        give_to(&writer, owner).map_err(|source| StdioError::ProcessEnd { stream, source })?;
        let writer = Some(writer);
        Ok(Self { stream, fifo: None, writer, keep_alive: None, pipe: None, held_back: Vec::new() })
    }

    /// What the process writes to; `None` after the final exit.
    fn process_end(&self) -> Option<&File> {
        match &self.pipe {
            Some(pipe) => pipe.process_end.as_ref(),
            None => self.writer.as_ref(),
        }
    }
}

impl Stdio {
    /// Opens the files that `paths` names and makes the process's ends, which it gives to `owner`. Fifos are only
    /// checked here; [`Self::connect`] opens them.
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
            OutputAddresses::Logger(command) => {
                let (logger, [stdout, stderr]) = Logger::prepare(command)
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

    /// Starts the logging program, if there is one, and waits until it is ready, at most 30 s. Call it before the first
    /// create or exec. The started program serves every incarnation.
    ///
    /// Cancel-safe: dropping the future kills the program.
    pub async fn start_logger(
        &mut self,
        reaper: &Reaper,
        identity: LoggerIdentity<'_>,
    ) -> Result<(), StdioError> {
        match &mut self.logger {
            Some(logger) => Ok(logger.start(reaper, identity).await?),
            None => Ok(()),
        }
    }

    /// Terminal or streams.
    pub fn mode(&self) -> StreamMode {
        self.mode
    }

    /// Non-blocking ends for the console of the next incarnation, once connected; none for plain streams.
    pub fn console_streams(&self) -> io::Result<ConsoleStreams> {
        if self.mode == StreamMode::Streams {
            return Ok(ConsoleStreams { stdin: None, stdout: None });
        }
        let stdin = self.stdin.as_ref().and_then(|input| input.reader.as_ref());
        let stdin = stdin.map(File::try_clone).transpose()?;
        let stdout = self.stdout.as_ref().and_then(|output| output.writer.as_ref());
        Ok(ConsoleStreams { stdin, stdout: stdout.map(File::try_clone).transpose()? })
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

    /// Finishes the output and waits until containerd has got all of it, for at most `limit`; then cuts it. Afterwards
    /// containerd sees EOF even if a background process still holds a stream (CONTRACT §7).
    ///
    /// Ends a logging program that does not end with its input: SIGTERM after a second, SIGKILL at the limit.
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
        if let Some(logger) = &mut self.logger {
            logger.end_by(deadline).await;
        }
    }

    /// Writes one `podshim: ` line to the container's own stderr, or to stdout if that is its only stream (rules U7,
    /// J9).
    ///
    /// Never blocks and never fails: the line is dropped if the stream is full, finished or absent. It is cut to
    /// PIPE_BUF bytes; up to that length a fifo write is atomic and cannot tear the container's output.
    pub fn write_line(&self, text: &str) {
        let Some(mut writer) = [&self.stderr, &self.stdout]
            .into_iter()
            .find_map(|output| output.as_ref().and_then(|output| output.writer.as_ref()))
        else {
            return;
        };
        let ending = match self.mode {
            StreamMode::Streams => "\n",
            // A terminal in raw mode does not turn a line feed into a new line.
            StreamMode::Terminal => "\r\n",
        };
        let one_line: String =
            text.chars().map(|character| if character.is_control() { ' ' } else { character }).collect();
        let mut line = format!("podshim: {one_line}");
        line.truncate(line.floor_char_boundary(libc::PIPE_BUF - ending.len()));
        line.push_str(ending);
        // Non-blocking: this open file description is the shim's alone.
        if let Err(error) = writer.write_all(line.as_bytes()) {
            debug!(%error, line, "dropped a line for the container's log");
        }
    }
}

fn nonblocking_pipe() -> io::Result<(File, File)> {
    let (reader, writer) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
    Ok((reader.into(), writer.into()))
}

fn give_to(file: &File, owner: StreamOwner) -> io::Result<()> {
    if owner == StreamOwner::default() {
        return Ok(());
    }
    std::os::unix::fs::fchown(file, owner.user, owner.group)
}
