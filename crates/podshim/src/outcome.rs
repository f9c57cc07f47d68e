//! How a command ends: its outcome, its errors, and their exit codes.

use std::io;

use control_api::client::ClientError;

use crate::shims::FindError;
use crate::source::SourceError;

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All is well: exit code 0.
    Success,
    /// The command has printed problems or a failure: exit code 1.
    Findings,
}

/// Why a command could not do its work.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// It was called wrongly: exit code 2.
    #[error("{message} (see podshim {command}{}-h)", if .command.is_empty() { "" } else { " " })]
    Usage {
        /// What is wrong.
        message: String,
        /// The command that was called; empty if there was none.
        command: String,
    },
    /// A file cannot be used.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// There is no such pod.
    #[error(transparent)]
    Find(#[from] FindError),
    /// The pod's shim refused the request or did not answer.
    #[error("pod {pod}: {source}")]
    Shim {
        /// The pod as the user named it.
        pod: String,
        /// The error of the call to its shim.
        source: ClientError,
    },
    /// Any other failure, such as a file with the wrong content.
    #[error("{0}")]
    Input(String),
    /// The result cannot be written.
    #[error("cannot write the output: {0}")]
    Output(#[from] io::Error),
}

impl CommandError {
    /// The error of a wrong call.
    pub fn usage(command: impl Into<String>, message: impl ToString) -> Self {
        Self::Usage { message: message.to_string(), command: command.into() }
    }

    /// The error with what to do about it, for a caller who is root or is not.
    pub fn advice(&self, is_root: bool) -> String {
        let text = self.to_string();
        // EACCES and EPERM, as the system's errors end in every part of the command.
        let is_denied = ["(os error 13)", "(os error 1)"].iter().any(|error| text.contains(error));
        if is_denied && !is_root { format!("{text}: run it as root") } else { text }
    }

    /// 2 for a wrong call, 1 for everything else.
    pub fn exit_code(&self) -> u8 {
        if matches!(self, Self::Usage { .. }) { 2 } else { 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn found_n20_a_caller_without_rights_reads_what_to_do() {
        let refused =
            |number| CommandError::Input(format!("/run/podshim: {}", io::Error::from_raw_os_error(number)));
        assert!(refused(13).advice(false).ends_with("(os error 13): run it as root"));
        assert!(refused(1).advice(false).ends_with(": run it as root"));
        assert_eq!(refused(13).advice(true), refused(13).to_string(), "root has no more rights to ask for");
        assert_eq!(refused(2).advice(false), refused(2).to_string());
    }
}
