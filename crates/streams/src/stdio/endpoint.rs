//! containerd's side of a standard stream: what the address names, opened without ever blocking the thread.
//!
//! Owns the rules of opening (CONTRACT §7). [`Stdio`](super::Stdio) uses the open ends.

use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use tokio::time::Instant;

use super::error::{StdioError, StreamName};
use super::logger::{LoggerCommand, ReadinessSignal};
use super::paths::{StdioPaths, StreamMode};
use super::uri::Uri;

const READER_POLL_FIRST: Duration = Duration::from_millis(1);
const READER_POLL_LONGEST: Duration = Duration::from_millis(50);

/// The target of one address of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Address {
    /// A path without a scheme, or `fifo://`.
    Fifo { stream: StreamName, path: PathBuf },
    /// `file://`: created if needed, appended to.
    File { stream: StreamName, path: PathBuf },
}

/// The targets of all three addresses of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Addresses {
    pub(super) stdin: Option<Address>,
    pub(super) output: OutputAddresses,
}

/// Where stdout and stderr go: the form of stdout decides (CONTRACT §7).
#[derive(Debug, PartialEq, Eq)]
pub(super) enum OutputAddresses {
    /// Each goes to its own target; stderr goes to stdout's file if stdout is a file.
    Apart { stdout: Option<Address>, stderr: Option<Address> },
    /// Both go to one program; the address of stderr is ignored.
    Logger(LoggerCommand),
}

impl Addresses {
    pub(super) fn parse(paths: &StdioPaths) -> Result<Self, StdioError> {
        let stdin = Address::parse(StreamName::Stdin, &paths.stdin)?;
        if let Some(logger) = parse_logger(&paths.stdout)? {
            // As in containerd's shim, a logged process has a stdin only if it has a terminal.
            let stdin = stdin.filter(|_| paths.mode == StreamMode::Terminal);
            return Ok(Self { stdin, output: OutputAddresses::Logger(logger) });
        }
        let stdout = Address::parse(StreamName::Stdout, &paths.stdout)?;
        let stderr = match (paths.mode, &stdout) {
            (StreamMode::Terminal, _) => None,
            (StreamMode::Streams, _) if paths.stderr.is_empty() => None,
            (StreamMode::Streams, Some(Address::File { path, .. })) => {
                Some(Address::File { stream: StreamName::Stderr, path: path.clone() })
            }
            (StreamMode::Streams, _) => Address::parse(StreamName::Stderr, &paths.stderr)?,
        };
        Ok(Self { stdin, output: OutputAddresses::Apart { stdout, stderr } })
    }
}

fn parse_logger(address: &str) -> Result<Option<LoggerCommand>, StdioError> {
    let (rest, readiness) = match address.split_once(':') {
        Some(("binary", rest)) => (rest, ReadinessSignal::Close),
        Some(("binary-v2", rest)) => (rest, ReadinessSignal::Byte),
        _ => return Ok(None),
    };
    match Uri::parse(rest) {
        Some(uri) => Ok(Some(LoggerCommand::new(uri, readiness))),
        None => Err(StdioError::Address { stream: StreamName::Stdout, address: address.to_owned() }),
    }
}

/// What a stream is read from or written to.
#[derive(Debug)]
pub(super) enum StreamTarget {
    /// A fifo, which is opened later, when the process exists.
    Fifo(Fifo),
    /// An open file.
    File(File),
}

/// A fifo that has not been opened yet.
#[derive(Debug)]
pub(super) struct Fifo {
    stream: StreamName,
    path: PathBuf,
}

/// How long a fifo may wait for its reader.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReaderWait {
    limit: Duration,
    deadline: Instant,
}

impl ReaderWait {
    pub(super) fn starting_now(limit: Duration) -> Self {
        Self { limit, deadline: Instant::now() + limit }
    }
}

impl Address {
    /// An empty address means no stream.
    fn parse(stream: StreamName, address: &str) -> Result<Option<Self>, StdioError> {
        let path = |rest: &str| match Uri::parse(rest) {
            Some(uri) => Ok(uri.path),
            None => Err(StdioError::Address { stream, address: address.to_owned() }),
        };
        let parsed = match address.split_once(':') {
            None if address.is_empty() => return Ok(None),
            Some(("fifo", rest)) => Self::Fifo { stream, path: path(rest)? },
            Some(("file", rest)) if stream != StreamName::Stdin => Self::File { stream, path: path(rest)? },
            Some((_, rest)) if rest.starts_with("//") => {
                return Err(StdioError::Unsupported { stream, address: address.to_owned() });
            }
            _ => Self::Fifo { stream, path: address.into() },
        };
        Ok(Some(parsed))
    }

    pub(super) fn open_input(self) -> Result<StreamTarget, StdioError> {
        let (Self::Fifo { stream, path } | Self::File { stream, path }) = self;
        match is_fifo(stream, &path)? {
            true => Ok(StreamTarget::Fifo(Fifo { stream, path })),
            false => match OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path) {
                Ok(file) => Ok(StreamTarget::File(file)),
                Err(source) => Err(StdioError::Open { stream, path, source }),
            },
        }
    }

    pub(super) fn open_output(self) -> Result<StreamTarget, StdioError> {
        match self {
            Self::File { stream, path } => open_file(stream, path).map(StreamTarget::File),
            Self::Fifo { stream, path } if is_fifo(stream, &path)? => {
                Ok(StreamTarget::Fifo(Fifo { stream, path }))
            }
            // containerd's shim appends to a plain file if the address is a bare path.
            Self::Fifo { stream, path } => {
                match OpenOptions::new().append(true).custom_flags(libc::O_NONBLOCK).open(&path) {
                    Ok(file) => Ok(StreamTarget::File(file)),
                    Err(source) => Err(StdioError::Open { stream, path, source }),
                }
            }
        }
    }
}

fn is_fifo(stream: StreamName, path: &Path) -> Result<bool, StdioError> {
    match path.metadata() {
        Ok(metadata) => Ok(metadata.file_type().is_fifo()),
        Err(source) => Err(StdioError::Open { stream, path: path.to_owned(), source }),
    }
}

impl Fifo {
    /// Opens the read end, and a write end that keeps the fifo from seeing EOF until CloseIO, although containerd may
    /// go and come back.
    pub(super) fn open_to_read(self) -> Result<(File, File), StdioError> {
        let Self { stream, path } = self;
        let open = || {
            // The read end first: without a reader the non-blocking write end fails with ENXIO.
            let reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path)?;
            let writer = OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&path)?;
            Ok((reader, writer))
        };
        open().map_err(|source| StdioError::Open { stream, path: path.clone(), source })
    }

    /// Opens the write end once a reader has the fifo open, and a read end that lets it survive a restart of its real
    /// reader. Does not block the thread.
    pub(super) async fn open_to_write(self, wait: ReaderWait) -> Result<(File, File), StdioError> {
        let Self { stream, path } = self;
        let mut pause = READER_POLL_FIRST;
        loop {
            // Never with O_APPEND: splice(2) into it would fail.
            match OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&path) {
                Ok(writer) => {
                    let mut options = OpenOptions::new();
                    options.read(true).custom_flags(libc::O_NONBLOCK);
                    return match options.open(descriptor_path(&writer)) {
                        Ok(keep_alive) => Ok((writer, keep_alive)),
                        Err(source) => Err(StdioError::Open { stream, path, source }),
                    };
                }
                // ENXIO: a fifo without a reader. containerd opens its side at the same time as this Create runs.
                Err(error) if error.raw_os_error() == Some(libc::ENXIO) => {
                    if Instant::now() >= wait.deadline {
                        return Err(StdioError::NoReader { stream, path, limit: wait.limit });
                    }
                }
                Err(source) => return Err(StdioError::Open { stream, path, source }),
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(READER_POLL_LONGEST);
        }
    }
}

fn open_file(stream: StreamName, path: PathBuf) -> Result<File, StdioError> {
    // Check before the open too: opening a device may already have an effect.
    if path.metadata().is_ok_and(|metadata| !is_log_file(&metadata)) {
        return Err(StdioError::NotAFile { stream, path });
    }
    let open = || {
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory)?;
        }
        // O_NONBLOCK: if the path became a fifo after the check, the open must not block the thread.
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o644).custom_flags(libc::O_NONBLOCK);
        let writer = options.open(&path)?;
        let is_file = is_log_file(&writer.metadata()?);
        Ok((writer, is_file))
    };
    match open() {
        Ok((writer, true)) => Ok(writer),
        Ok((_, false)) => Err(StdioError::NotAFile { stream, path }),
        Err(source) => Err(StdioError::Open { stream, path, source }),
    }
}

/// A plain file, or `/dev/null`, which users name to get no log.
fn is_log_file(metadata: &Metadata) -> bool {
    const NULL: u64 = libc::makedev(1, 3);
    metadata.is_file() || (metadata.file_type().is_char_device() && metadata.rdev() == NULL)
}

/// A blocking open file description of the same file, so that no other user shares its flags.
///
/// Works even if the path was removed. For pipes it opens at once, because both sides are open already.
pub(super) fn reopen(file: &File) -> io::Result<File> {
    let status = OFlag::from_bits_truncate(fcntl(file, FcntlArg::F_GETFL)?);
    let mut options = OpenOptions::new();
    match status & OFlag::O_ACCMODE {
        OFlag::O_RDONLY => options.read(true),
        _ => options.write(true),
    };
    let append = status & OFlag::O_APPEND;
    let reopened = options.custom_flags((OFlag::O_NONBLOCK | append).bits()).open(descriptor_path(file))?;
    fcntl(&reopened, FcntlArg::F_SETFL(append))?;
    Ok(reopened)
}

/// Opens a fifo for reading and writing, given one of its ends: as long as this is open, the fifo has a reader and a
/// writer.
pub(super) fn open_both_ends(fifo: &File) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(descriptor_path(fifo))
}

/// The same file for reading, whatever it was opened for. Only for regular files: it may wait for nothing.
pub(super) fn open_to_read_again(file: &File) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(descriptor_path(file))
}

/// The hand has descriptors of its own: `/proc/self/fd` has the head's.
fn descriptor_path(file: &File) -> String {
    format!("/proc/thread-self/fd/{}", file.as_raw_fd())
}
