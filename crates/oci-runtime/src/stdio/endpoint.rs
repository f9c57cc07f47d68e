//! containerd's side of a standard stream: what the address names, opened without ever blocking the thread.
//!
//! Owns the rules of opening (CONTRACT §7). What happens with the open ends is [`Stdio`](super::Stdio)'s business.

use std::{
    fs::{File, Metadata, OpenOptions},
    io,
    os::{
        fd::AsRawFd,
        unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    time::Duration,
};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use tokio::time::Instant;

use super::{
    StdioError, StdioPaths, StreamMode, StreamName,
    logger::{LoggerCommand, Readiness},
    uri::Uri,
};

const READER_POLL_FIRST: Duration = Duration::from_millis(1);
const READER_POLL_LONGEST: Duration = Duration::from_millis(50);

/// What one address of a request names.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Address {
    /// A path without a scheme, or `fifo://`.
    Fifo { stream: StreamName, path: PathBuf },
    /// `file://`: created if needed, appended to.
    File { stream: StreamName, path: PathBuf },
}

/// What the three strings of a request name together.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Addresses {
    pub(super) stdin: Option<Address>,
    pub(super) output: OutputAddresses,
}

/// Where stdout and stderr go: the form of stdout decides (CONTRACT §7).
#[derive(Debug, PartialEq, Eq)]
pub(super) enum OutputAddresses {
    /// Each to its own; stderr to stdout's file if that is one.
    Apart { stdout: Option<Address>, stderr: Option<Address> },
    /// Both to one program, whatever stderr says.
    Logger(LoggerCommand),
}

impl Addresses {
    pub(super) fn parse(paths: &StdioPaths) -> Result<Self, StdioError> {
        let stdin = Address::parse(StreamName::Stdin, &paths.stdin)?;
        if let Some(logger) = parse_logger(&paths.stdout)? {
            // As containerd's shim: a logged process has a stdin only if it has a terminal.
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
        Some(("binary", rest)) => (rest, Readiness::Close),
        Some(("binary-v2", rest)) => (rest, Readiness::Byte),
        _ => return Ok(None),
    };
    match Uri::parse(rest) {
        Some(uri) => Ok(Some(LoggerCommand::new(uri, readiness))),
        None => Err(StdioError::Address { stream: StreamName::Stdout, address: address.to_owned() }),
    }
}

/// The open ends of an input.
#[derive(Debug)]
pub(super) struct InputEnds {
    pub(super) reader: File,
    /// Keeps the reader from seeing EOF until CloseIO, although containerd may come and go; `None` for files.
    pub(super) writer: Option<File>,
}

/// The open ends of an output.
#[derive(Debug)]
pub(super) struct OutputEnds {
    pub(super) writer: File,
    /// Makes a fifo survive a restart of its real reader; `None` for files.
    pub(super) keep_alive: Option<File>,
}

/// Until when readers may come.
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
    /// An empty address is no stream at all.
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

    pub(super) fn open_input(self) -> Result<InputEnds, StdioError> {
        let (Self::Fifo { stream, path } | Self::File { stream, path }) = self;
        let open = || {
            // The read end first: without a reader the non-blocking write end fails with ENXIO.
            let reader = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(&path)?;
            let writer = match reader.metadata()?.file_type().is_fifo() {
                true => Some(OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK).open(&path)?),
                false => None,
            };
            Ok(InputEnds { reader, writer })
        };
        open().map_err(|source| StdioError::Open { stream, path: path.clone(), source })
    }

    /// Waits for a reader of a fifo; a file is there at once.
    pub(super) async fn open_output(self, wait: ReaderWait) -> Result<OutputEnds, StdioError> {
        match self {
            Self::File { stream, path } => open_file(stream, path),
            Self::Fifo { stream, path } => {
                let writer = open_when_read(stream, &path, wait).await?;
                let keep_alive = || match writer.metadata()?.file_type().is_fifo() {
                    true => OpenOptions::new()
                        .read(true)
                        .custom_flags(libc::O_NONBLOCK)
                        .open(descriptor_path(&writer))
                        .map(Some),
                    false => Ok(None),
                };
                match keep_alive() {
                    Ok(keep_alive) => Ok(OutputEnds { writer, keep_alive }),
                    Err(source) => Err(StdioError::Open { stream, path, source }),
                }
            }
        }
    }
}

fn open_file(stream: StreamName, path: PathBuf) -> Result<OutputEnds, StdioError> {
    // Before the open too: opening a device may already do something to it.
    if path.metadata().is_ok_and(|metadata| !is_log_file(&metadata)) {
        return Err(StdioError::NotAFile { stream, path });
    }
    let open = || {
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory)?;
        }
        // O_NONBLOCK: what has become a fifo since the look must not block the thread.
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o644).custom_flags(libc::O_NONBLOCK);
        let writer = options.open(&path)?;
        let is_file = is_log_file(&writer.metadata()?);
        Ok((writer, is_file))
    };
    match open() {
        Ok((writer, true)) => Ok(OutputEnds { writer, keep_alive: None }),
        Ok((_, false)) => Err(StdioError::NotAFile { stream, path }),
        Err(source) => Err(StdioError::Open { stream, path, source }),
    }
}

/// A plain file, or `/dev/null`, which people name to have no log.
fn is_log_file(metadata: &Metadata) -> bool {
    const NULL: u64 = libc::makedev(1, 3);
    metadata.is_file() || (metadata.file_type().is_char_device() && metadata.rdev() == NULL)
}

/// Opens the write end once somebody has the read end open, without blocking the thread.
async fn open_when_read(stream: StreamName, path: &Path, wait: ReaderWait) -> Result<File, StdioError> {
    let mut pause = READER_POLL_FIRST;
    loop {
        let is_fifo = std::fs::metadata(path).is_ok_and(|metadata| metadata.file_type().is_fifo());
        // containerd's shim appends to a plain file behind a bare path. A fifo must not carry O_APPEND:
        // splice(2) into it fails.
        let append = if is_fifo { 0 } else { libc::O_APPEND };
        match OpenOptions::new().write(true).custom_flags(libc::O_NONBLOCK | append).open(path) {
            Ok(file) => return Ok(file),
            // ENXIO: a fifo without a reader. containerd opens its side concurrently with our Create.
            Err(error) if is_fifo && error.raw_os_error() == Some(libc::ENXIO) => {
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

/// A blocking open file description of the same file, so that its flags are nobody else's.
///
/// Works after the path was removed, and for pipes, which open at once because both sides are open already.
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

fn descriptor_path(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}
