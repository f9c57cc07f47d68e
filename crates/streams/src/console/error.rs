//! Why a terminal cannot be had. Owns the wording.

use std::io;
use std::path::PathBuf;

use thiserror::Error;
use threads::hand::HandError;

/// How a console can fail.
#[derive(Debug, Error)]
pub enum ConsoleError {
    /// The socket cannot be made.
    #[error("cannot make a console socket in {}: {source}", directory.display())]
    Socket {
        /// The directory asked for.
        directory: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The thread that has it does not answer.
    #[error(transparent)]
    Hand(#[from] HandError),
    /// The runtime did not send a terminal.
    #[error("the OCI runtime sent no terminal: {0}")]
    Receive(#[source] io::Error),
    /// The terminal cannot be set up.
    #[error("cannot set up the terminal: {0}")]
    Setup(#[source] io::Error),
}
