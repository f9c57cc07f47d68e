//! The standard streams of one container or exec: containerd's fifos and files, opened once and kept
//! for every incarnation of the process.
//!
//! Owns the shim's ends. It looks at the data only for a gate that waits for a line (`lines`): a process gets an anonymous pipe, and the kernel moves the
//! data between that pipe and containerd's fifo (`mover`), or the pipe is a logging program's (`logger`). A
//! regular file goes to the process itself.
//!
//! Why a pipe, as containerd's runc shim has it, and not the fifo itself:
//! * a background process that holds the stream must not hold up containerd, which waits for EOF before it
//!   deletes (CONTRACT §7): behind a pipe the shim can end the stream ([`Stdio::drain`]);
//! * what the OCI runtime says on stderr when it fails to create is no output of the container: moving starts
//!   after its success ([`Stdio::accept`]);
//! * a fifo that was opened and closed again has told its reader the end: the next try with the same fifo would wait for
//!   a reader that has gone ([`UnusedFifos`]). One that is opened late may have lost its reader meanwhile. So when is the
//!   caller's to say ([`Stdio::connect`]);
//! * a security module may deny a container the label a fifo in /run has; an anonymous pipe has none of its own.
//!
//! What else must hold:
//! * a restart of containerd gives neither SIGPIPE nor loss: a read end of our own keeps the fifo readable, so
//!   unread bytes stay in the fifo and then in the pipe, until the writer blocks;
//! * incarnations share the pipe, so between them containerd sees no EOF (rule R6);
//! * a program that makes its stream non-blocking must not hand that to the next incarnation: each one
//!   gets an open file description of its own.

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
use endpoint::{Address, Addresses, FarEnd, Fifo, OutputAddresses, ReaderWait};
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

/// Owner to give the process's ends to (options `IoUid` and `IoGid` of containerd).
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
    /// Standard error: a fifo path, `fifo://` or `file://`. With a file or a program as stdout it goes there too.
    pub stderr: String,
    /// Terminal or streams.
    pub mode: StreamMode,
}

/// The non-blocking ends a console copies between; a fresh pair per incarnation.
#[derive(Debug)]
pub struct ConsoleStreams {
    /// Read end of the stdin fifo.
    pub stdin: Option<File>,
    /// Write end of stdout.
    pub stdout: Option<File>,
}

/// The open streams of one container or exec, kept from Create to Delete.
///
/// Dropping it cuts whatever still moves.
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
    // Of a connected fifo, until CloseIO.
    writer: Option<File>,
}

#[derive(Debug)]
struct Output {
    stream: StreamName,
    // Until it is connected.
    fifo: Option<Fifo>,
    // None before that, and after the final exit.
    writer: Option<File>,
    // Its being open is all it is for.
    keep_alive: Option<File>,
    // None for files and a logger's pipe, which the process gets itself, and for terminals.
    pipe: Option<Pipe>,
    // What incarnations write that were made when the pipe was in use already.
    held_back: Vec<Movement>,
}

/// What stands between the process and a fifo.
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
            FarEnd::Fifo(fifo) => (Some(fifo), None),
            FarEnd::File(file) => (None, Some(file)),
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
            (FarEnd::Fifo(fifo), StreamMode::Streams) => {
                output.fifo = Some(fifo);
                output.pipe = Some(Pipe::from_process(owner).map_err(process_end)?);
            }
            (FarEnd::Fifo(fifo), StreamMode::Terminal) => output.fifo = Some(fifo),
            (FarEnd::File(file), mode) => {
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
    /// Opens the files that `paths` names and makes the process's ends, which `owner` gets. Fifos are only looked at:
    /// they are opened by [`Self::connect`].
    pub fn open(paths: &StdioPaths, owner: StreamOwner) -> Result<Self, StdioError> {
        let mode = paths.mode;
        // Refuse what we cannot serve before anything is opened.
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
                // Nothing writes to it with a terminal; it ends with the other.
                let stderr = Output::to_logger(StreamName::Stderr, stderr, owner)?;
                (Some(stdout), Some(stderr), Some(logger))
            }
        };
        Ok(Self { mode, owner, stdin, stdout, stderr, logger })
    }

    /// Opens containerd's fifos. Call it before [`Self::accept`]; after the first time it does nothing.
    ///
    /// Waits up to [`READER_LIMIT`] for containerd's side of the output fifos. Cancel-safe: the set can be dropped.
    pub async fn connect(&mut self) -> Result<(), StdioError> {
        self.connect_within(READER_LIMIT).await
    }

    pub(crate) async fn connect_within(&mut self, limit: Duration) -> Result<(), StdioError> {
        // One limit for both, as containerd's shim has it.
        let wait = ReaderWait::starting_now(limit);
        if let Some(stdin) = &mut self.stdin {
            stdin.connect()?;
        }
        for output in [&mut self.stdout, &mut self.stderr].into_iter().flatten() {
            output.connect(wait).await?;
        }
        Ok(())
    }

    /// Starts the logging program, if there is one, and waits until it is ready, at most 30 s. Call it before the
    /// first create or exec. Once started it serves every incarnation.
    ///
    /// Cancel-safe: dropping the future kills it.
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

    /// Non-blocking ends for the console of the next incarnation, once connected; none without a terminal.
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

    /// The final exit: drops our write ends and stdin, so that containerd sees EOF as soon as the last
    /// process holding the stream is gone, or at once if nothing ever moved. Unread output stays readable until
    /// the set is dropped. Idempotent.
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

    /// Finishes the output and waits until containerd has been given all of it, for at most `limit`; then cuts
    /// it. Afterwards containerd sees EOF even if a background process still holds a stream (CONTRACT §7).
    ///
    /// A logging program that has not ended with its input is ended: SIGTERM after a second, SIGKILL when the limit
    /// has passed.
    ///
    /// Lost is only what containerd did not read in time beyond what its fifo holds. A file or the output of a
    /// console does not wait. Cancel-safe: dropping the future cuts nothing.
    pub async fn drain(&mut self, limit: Duration) {
        self.finish_output();
        let deadline = Instant::now() + limit;
        for output in [&mut self.stdout, &mut self.stderr].into_iter().flatten() {
            // First what goes into the pipe, then the pipe.
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

    /// Writes one `podshim: ` line to the container's own stderr, or stdout when that is all it has
    /// (rules U7, J9).
    ///
    /// Never blocks and never fails: the line is dropped when the stream is full, finished or absent. It
    /// is cut to PIPE_BUF bytes, below which a fifo write is atomic and cannot tear the container's output.
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
        // Non-blocking: no process has this open file description.
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
