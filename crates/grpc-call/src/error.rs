//! How a call fails, in words that the reader of a log can act on.

/// Why there is no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// What listens there does not speak HTTP/2.
    #[error("no answer of gRPC")]
    NotGrpc,
    /// The server ended the call without a message; the reason is in headers, which are not read.
    #[error("the call was refused")]
    Refused,
    /// More came than the answer may have.
    #[error("the answer is too long")]
    TooLong,
    /// The answer breaks the protocol.
    #[error("the answer is not understood: {0}")]
    Malformed(&'static str),
}
