//! Why a hand does not answer, in words for the caller of what needs it. Owns the wording.

use std::io;
use std::time::Duration;

use thiserror::Error;

/// Why a hand has not done what it was asked for.
#[derive(Debug, Error)]
pub enum HandError {
    /// There is no such thread.
    #[error("cannot start the thread of the pod's streams: {0}")]
    Start(io::Error),
    /// It has been busy with something else for so long.
    #[error(
        "the thread of the pod's streams has not answered for {} s: a container of the pod holds the lock of one of its pipes or of \
         its terminal; ending that container frees it", limit.as_secs()
    )]
    Away {
        /// How long podshim waited.
        limit: Duration,
    },
    /// What it was to be done with is gone.
    #[error("the streams are closed")]
    Closed,
}
