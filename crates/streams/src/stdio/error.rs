//! Why a container's standard streams cannot be opened, in words that name the stream and the address that containerd
//! gave. Owns the wording; opens nothing.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use thiserror::Error;
use threads::hand::HandError;

use super::logger::LoggerError;

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
    /// No reader opened the output fifo in time.
    #[error("no reader opened {stream} at {} within {} s", path.display(), limit.as_secs())]
    NoReader {
        /// Which stream.
        stream: StreamName,
        /// The path containerd gave.
        path: PathBuf,
        /// How long podshim waited.
        limit: Duration,
    },
    /// `file://` names something other than a plain file.
    #[error(
        "cannot open {stream} at file://{}: it is not a regular file (a fifo is named by its bare path)",
        path.display()
    )]
    NotAFile {
        /// Which stream.
        stream: StreamName,
        /// The path containerd gave.
        path: PathBuf,
    },
    /// The process's end cannot be made, or not be given to its owner.
    #[error("cannot set up {stream} for the process: {source}")]
    ProcessEnd {
        /// Which stream.
        stream: StreamName,
        /// The kernel's error.
        source: io::Error,
    },
    /// The streams of one process cannot be made.
    #[error("cannot set up the streams of a process: {0}")]
    Process(#[source] io::Error),
    /// The thread that has them does not answer.
    #[error(transparent)]
    Hand(#[from] HandError),
    /// The logging program cannot be used.
    #[error(transparent)]
    Logger(#[from] LoggerError),
    /// The path of an address cannot be read.
    #[error("{stream} {address:?}: the path has to be absolute, with special characters written as %XX")]
    Address {
        /// Which stream.
        stream: StreamName,
        /// The whole string containerd gave.
        address: String,
    },
    /// A scheme that podshim does not support for this stream.
    #[error(
        "{stream} {address:?}: not supported: stdin is a fifo; stdout is a fifo, file:// or binary://, and stderr \
         goes where stdout goes or to a fifo or file:// of its own"
    )]
    Unsupported {
        /// Which stream.
        stream: StreamName,
        /// The whole string containerd gave.
        address: String,
    },
}

impl StdioError {
    /// Whether the thread that has the streams is away: another one may do without them.
    pub fn is_of_a_hand_that_is_away(&self) -> bool {
        matches!(self, Self::Hand(HandError::Away { .. }))
    }
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
