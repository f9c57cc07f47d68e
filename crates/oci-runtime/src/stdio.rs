//! The standard streams of one container or exec: containerd's fifos and files, opened once and kept
//! for every incarnation of the process.
//!
//! Owns the shim's ends. It never copies data: the process gets the fifo itself.
//!
//! Why that is safe, where containerd's runc shim puts a pipe and a copy loop in between:
//! * a restart of containerd must give neither SIGPIPE nor loss: a read end of our own stays open, so the
//!   fifo always has a reader and unread bytes stay in it (up to 64 KiB, then the writer blocks, as with a pipe);
//! * `/dev/stdout` must be openable by the container's user: runc's init changes the owner of its
//!   standard streams to that user (`fchown` works on fifos), and opening goes through `/proc/self/fd`,
//!   where only the fifo's own mode counts, not the path to it;
//! * a program that makes its stream non-blocking must not hand that to the next incarnation: each one
//!   gets an open file description of its own;
//! * containerd sees EOF when the last writer is gone, which is what the copy loop imitates.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::{
        fd::AsRawFd,
        unix::fs::{FileTypeExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    process::Stdio as ProcessStdio,
    time::Duration,
};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use thiserror::Error;
use tokio::time::Instant;
use tracing::debug;

#[cfg(test)]
mod tests;

/// How long containerd gets to open its side of a fifo (containerd's runc shim: process/init.go, 30 s).
pub const READER_LIMIT: Duration = Duration::from_secs(30);
const READER_POLL_FIRST: Duration = Duration::from_millis(1);
const READER_POLL_LONGEST: Duration = Duration::from_millis(50);

/// Why the standard streams cannot be opened.
#[derive(Debug, Error)]
pub enum StdioError {
    /// The path does not exist, is not a fifo or file, or cannot be opened.
    #[error("cannot open {stream} at {}: {source}", path.display())]
    Open {
        /// Which stream.
        stream: StreamName,
        /// The path containerd gave.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// Nobody opened the read side of an output fifo.
    #[error("no reader opened {stream} at {} within {} s", path.display(), limit.as_secs())]
    NoReader {
        /// Which stream.
        stream: StreamName,
        /// The path containerd gave.
        path: PathBuf,
        /// How long we waited.
        limit: Duration,
    },
    /// A scheme podshim does not serve.
    #[error("{stream} {address:?}: not supported yet: use a fifo path, fifo:// or file://")]
    Unsupported {
        /// Which stream.
        stream: StreamName,
        /// The whole string containerd gave.
        address: String,
    },
}

/// Name of a standard stream, for messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamName {
    /// Standard input.
    Stdin,
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl std::fmt::Display for StreamName {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(match self {
            Self::Stdin => "stdin",
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        })
    }
}

/// Whether the process has a terminal or plain streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StreamMode {
    /// stdin, stdout and stderr go to the process as they are.
    #[default]
    Streams,
    /// A pty: stdin and stdout belong to the [`Console`](crate::console::Console), stderr is unused.
    Terminal,
}

/// Owner to give the streams to (options `IoUid` and `IoGid` of containerd).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StreamOwner {
    /// User id, if it is to be changed.
    pub user: Option<u32>,
    /// Group id, if it is to be changed.
    pub group: Option<u32>,
}

/// The strings of a Create or Exec request (CONTRACT 7); empty means none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StdioPaths {
    /// Standard input: a fifo.
    pub stdin: String,
    /// Standard output: a fifo path, `fifo://` or `file://`.
    pub stdout: String,
    /// Standard error, as `stdout`.
    pub stderr: String,
    /// Terminal or streams.
    pub mode: StreamMode,
}

/// The three descriptors one incarnation of the process is started with.
#[derive(Debug)]
pub struct ChildStdio {
    /// Standard input.
    pub stdin: ProcessStdio,
    /// Standard output.
    pub stdout: ProcessStdio,
    /// Standard error.
    pub stderr: ProcessStdio,
}

impl ChildStdio {
    /// `/dev/null` three times.
    pub fn null() -> Self {
        Self { stdin: ProcessStdio::null(), stdout: ProcessStdio::null(), stderr: ProcessStdio::null() }
    }
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
#[derive(Debug, Default)]
pub struct Stdio {
    mode: StreamMode,
    stdin: Option<Input>,
    stdout: Option<Output>,
    stderr: Option<Output>,
}

#[derive(Debug)]
struct Input {
    reader: File,
    // Keeps the reader from seeing EOF until CloseIO, although containerd may come and go.
    writer: Option<File>,
}

#[derive(Debug)]
struct Output {
    // None after the final exit.
    writer: Option<File>,
    // Makes the fifo survive a restart of its real reader; None for files.
    #[expect(dead_code, reason = "its being open is all it is for")]
    keep_alive: Option<File>,
}

impl Stdio {
    /// Opens what `paths` names and gives it to `owner`.
    ///
    /// Waits up to [`READER_LIMIT`] for containerd's side of each output fifo. Cancel-safe: dropping the
    /// future closes what was opened.
    pub async fn open(paths: &StdioPaths, owner: StreamOwner) -> Result<Self, StdioError> {
        Self::open_within(paths, owner, READER_LIMIT).await
    }

    pub(crate) async fn open_within(
        paths: &StdioPaths,
        owner: StreamOwner,
        limit: Duration,
    ) -> Result<Self, StdioError> {
        // Refuse what we cannot serve before waiting for anything.
        let stdin = Source::parse(StreamName::Stdin, &paths.stdin)?;
        let stdout = Source::parse(StreamName::Stdout, &paths.stdout)?;
        let stderr = match paths.mode {
            StreamMode::Streams => Source::parse(StreamName::Stderr, &paths.stderr)?,
            StreamMode::Terminal => None,
        };
        let stdin = stdin.map(|source| source.open_input(owner)).transpose()?;
        // One limit for both, as containerd's shim has it.
        let wait = ReaderWait { limit, deadline: Instant::now() + limit };
        let stdout = open_output(stdout, owner, wait).await?;
        let stderr = open_output(stderr, owner, wait).await?;
        Ok(Self { mode: paths.mode, stdin, stdout, stderr })
    }

    /// Terminal or streams.
    pub fn mode(&self) -> StreamMode {
        self.mode
    }

    /// Descriptors for the next incarnation of the process. With a terminal they are `/dev/null`: the
    /// process gets its pty through the console socket.
    pub fn child_stdio(&self) -> io::Result<ChildStdio> {
        if self.mode == StreamMode::Terminal {
            return Ok(ChildStdio::null());
        }
        let output = |output: &Option<Output>| match output.as_ref().and_then(|output| output.writer.as_ref())
        {
            Some(writer) => reopen(writer, Blocking::Yes).map(ProcessStdio::from),
            None => Ok(ProcessStdio::null()),
        };
        Ok(ChildStdio {
            stdin: match &self.stdin {
                Some(input) => reopen(&input.reader, Blocking::Yes)?.into(),
                None => ProcessStdio::null(),
            },
            stdout: output(&self.stdout)?,
            stderr: output(&self.stderr)?,
        })
    }

    /// Non-blocking ends for the console of the next incarnation.
    pub fn console_streams(&self) -> io::Result<ConsoleStreams> {
        let stdin = self.stdin.as_ref().map(|input| reopen(&input.reader, Blocking::No)).transpose()?;
        let stdout = self.stdout.as_ref().and_then(|output| output.writer.as_ref());
        Ok(ConsoleStreams { stdin, stdout: stdout.map(|writer| reopen(writer, Blocking::No)).transpose()? })
    }

    /// CloseIO: the process sees EOF on stdin once containerd has closed its side too. Idempotent.
    pub fn close_stdin(&mut self) {
        if let Some(input) = &mut self.stdin {
            input.writer = None;
        }
    }

    /// The final exit: drops our write ends and stdin, so that containerd sees EOF as soon as the last
    /// process holding the stream is gone. Unread output stays readable until the set is dropped.
    pub fn finish_output(&mut self) {
        self.stdin = None;
        for output in [&mut self.stdout, &mut self.stderr].into_iter().flatten() {
            output.writer = None;
        }
    }

    /// Writes one `podshim: ` line to the container's own stderr, or stdout when that is all it has
    /// (rules U7, J9).
    ///
    /// Never blocks and never fails: the line is dropped when the stream is full, finished or absent. It
    /// is cut to PIPE_BUF bytes, below which a fifo write is atomic and cannot tear the container's output.
    pub fn write_line(&self, text: &str) {
        let Some(writer) = [&self.stderr, &self.stdout]
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
        // O_NONBLOCK belongs to the open file description, and the container shares ours only by fork.
        let written = reopen(writer, Blocking::No).and_then(|mut stream| stream.write_all(line.as_bytes()));
        if let Err(error) = written {
            debug!(%error, line, "dropped a line for the container's log");
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Source {
    /// A path without a scheme, or `fifo://`.
    Fifo { stream: StreamName, path: PathBuf },
    /// `file://`: created if needed, appended to.
    File { stream: StreamName, path: PathBuf },
}

impl Source {
    fn parse(stream: StreamName, address: &str) -> Result<Option<Self>, StdioError> {
        let source = match address.split_once("://") {
            None if address.is_empty() => return Ok(None),
            None => Self::Fifo { stream, path: address.into() },
            Some(("fifo", path)) => Self::Fifo { stream, path: path.into() },
            Some(("file", path)) if stream != StreamName::Stdin => Self::File { stream, path: path.into() },
            Some(_) => return Err(StdioError::Unsupported { stream, address: address.to_owned() }),
        };
        Ok(Some(source))
    }

    fn open_input(self, owner: StreamOwner) -> Result<Input, StdioError> {
        let (Self::Fifo { stream, path } | Self::File { stream, path }) = self;
        let open = || {
            // The read end first: without a reader the non-blocking write end fails with ENXIO.
            let reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path)?;
            let writer = match reader.metadata()?.file_type().is_fifo() {
                true => Some(OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&path)?),
                false => None,
            };
            give_to(&reader, owner)?;
            Ok(Input { reader, writer })
        };
        open().map_err(|source| StdioError::Open { stream, path: path.clone(), source })
    }
}

/// Until when readers may come.
#[derive(Debug, Clone, Copy)]
struct ReaderWait {
    limit: Duration,
    deadline: Instant,
}

async fn open_output(
    source: Option<Source>,
    owner: StreamOwner,
    wait: ReaderWait,
) -> Result<Option<Output>, StdioError> {
    let output = match source {
        None => return Ok(None),
        Some(Source::File { stream, path }) => {
            let open = || {
                if let Some(directory) = path.parent() {
                    std::fs::create_dir_all(directory)?;
                }
                let writer = OpenOptions::new().append(true).create(true).mode(0o644).open(&path)?;
                give_to(&writer, owner)?;
                Ok(Output { writer: Some(writer), keep_alive: None })
            };
            open().map_err(|source| StdioError::Open { stream, path: path.clone(), source })?
        }
        Some(Source::Fifo { stream, path }) => {
            let writer = open_when_read(stream, &path, wait).await?;
            finish_opening(writer, &path, owner).map_err(|source| StdioError::Open {
                stream,
                path,
                source,
            })?
        }
    };
    Ok(Some(output))
}

/// Opens the write end once somebody has the read end open, without blocking the thread.
async fn open_when_read(stream: StreamName, path: &Path, wait: ReaderWait) -> Result<File, StdioError> {
    let mut pause = READER_POLL_FIRST;
    loop {
        // containerd's shim appends to a plain file behind a bare path. A fifo must not carry O_APPEND:
        // splice(2) into it would fail in the container.
        let append = if is_fifo(path) { 0 } else { libc::O_APPEND };
        match OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK | append).open(path) {
            Ok(file) => return Ok(file),
            // ENXIO: a fifo without a reader. containerd opens its side concurrently with our Create.
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => {
                if Instant::now() >= wait.deadline {
                    return Err(StdioError::NoReader { stream, path: path.to_owned(), limit: wait.limit });
                }
            }
            Err(source) => return Err(StdioError::Open { stream, path: path.to_owned(), source }),
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(READER_POLL_LONGEST);
    }
}

fn is_fifo(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo())
}

fn finish_opening(writer: File, path: &Path, owner: StreamOwner) -> io::Result<Output> {
    let keep_alive = match writer.metadata()?.file_type().is_fifo() {
        true => Some(OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)?),
        false => None,
    };
    give_to(&writer, owner)?;
    Ok(Output { writer: Some(writer), keep_alive })
}

fn give_to(file: &File, owner: StreamOwner) -> io::Result<()> {
    if owner == StreamOwner::default() {
        return Ok(());
    }
    std::os::unix::fs::fchown(file, owner.user, owner.group)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Blocking {
    Yes,
    No,
}

/// A new open file description of the same file, so that its flags are nobody else's.
///
/// Works after the path was removed, and on fifos opens at once because both sides are open already.
fn reopen(file: &File, blocking: Blocking) -> io::Result<File> {
    let status = OFlag::from_bits_truncate(fcntl(file, FcntlArg::F_GETFL)?);
    let mut options = OpenOptions::new();
    match status & OFlag::O_ACCMODE {
        OFlag::O_RDONLY => options.read(true),
        _ => options.write(true),
    };
    let append = status & OFlag::O_APPEND;
    let reopened = options
        .custom_flags((OFlag::O_NONBLOCK | append).bits())
        .open(format!("/proc/self/fd/{}", file.as_raw_fd()))?;
    if blocking == Blocking::Yes {
        fcntl(&reopened, FcntlArg::F_SETFL(append))?;
    }
    Ok(reopened)
}
