//! What a request can fail with, and the one place where that becomes a ttrpc status code.
//!
//! The codes are a contract: containerd and the kubelet act on them (CONTRACT §9). Nothing else in the crate
//! builds a ttrpc status, so an error cannot travel under two codes.

use oci_runtime::runtime::RuntimeError;
use pod_lifecycle::{Failure, Refusal, RefusalKind};
use thiserror::Error;
use ttrpc::proto::Code;

use crate::options::OptionsError;

/// Why a request was not served.
#[derive(Debug, Error)]
pub enum ServiceError {
    /// The pod refused it, or what it began failed.
    #[error(transparent)]
    Refused(Refusal),
    /// The request, the annotations or the spec are wrong; sending them again cannot help.
    #[error("container {container}: {message}")]
    Invalid {
        /// The container's id.
        container: String,
        /// What is wrong and how to write it.
        message: String,
    },
    /// The runtime options are wrong.
    #[error("container {container}: {source}")]
    Options {
        /// The container's id.
        container: String,
        /// What is wrong with them.
        source: OptionsError,
    },
    /// An RPC this shim does not serve. Never an answer to Connect or Create: containerd 2.x takes it there
    /// for "speaks only task v2" and asks again (CONTRACT §9).
    #[error("{what} is not supported yet")]
    Unsupported {
        /// The RPC or what it asks for.
        what: &'static str,
    },
    /// The system refused something the shim needs.
    #[error("container {container}: {operation}: {source}")]
    System {
        /// The container's id.
        container: String,
        /// What was attempted, with the path.
        operation: &'static str,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The node is being drained (N7): nothing new is begun on it.
    #[error("container {container}: node is draining ({file} is there; podshim drain --undo removes it)")]
    Draining {
        /// The container's id.
        container: String,
        /// The file that says so.
        file: String,
    },
    /// The pod's owner has ended, with the last of its containers: the shim is about to exit.
    #[error("the pod's shim is shutting down, its containers are gone")]
    ShuttingDown,
}

impl ServiceError {
    /// The status code a caller sees (CONTRACT §9).
    pub fn code(&self) -> Code {
        match self {
            Self::Refused(refusal) => match refusal.kind {
                RefusalKind::NotFound => Code::NOT_FOUND,
                RefusalKind::AlreadyExists => Code::ALREADY_EXISTS,
                RefusalKind::FailedPrecondition => Code::FAILED_PRECONDITION,
                RefusalKind::InvalidArgument => Code::INVALID_ARGUMENT,
                RefusalKind::Unimplemented => Code::UNIMPLEMENTED,
                RefusalKind::DeadlineExceeded => Code::DEADLINE_EXCEEDED,
                // What containerd's own shim answers when its runtime fails.
                RefusalKind::Internal => Code::UNKNOWN,
            },
            Self::Invalid { .. } | Self::Options { .. } => Code::INVALID_ARGUMENT,
            Self::Unsupported { .. } => Code::UNIMPLEMENTED,
            Self::System { .. } => Code::UNKNOWN,
            Self::Draining { .. } => Code::UNAVAILABLE,
            // As containerd reads the closed connection it would find a moment later. Its CRI takes it for "stopped
            // already", and fails StopPodSandbox for any other code (trap 23).
            Self::ShuttingDown => Code::NOT_FOUND,
        }
    }
}

impl From<ServiceError> for ttrpc::Error {
    fn from(error: ServiceError) -> Self {
        ttrpc::error::get_rpc_status(error.code(), error)
    }
}

impl From<Refusal> for ServiceError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// An error of this machine as the pod takes it.
pub(crate) fn failure(error: impl std::fmt::Display) -> Failure {
    Failure { message: error.to_string(), kind: RefusalKind::Internal }
}

/// An error of the OCI runtime, in its own words.
pub(crate) fn runtime_failure(error: RuntimeError) -> Failure {
    let kind = match &error {
        RuntimeError::TimedOut { .. } => RefusalKind::DeadlineExceeded,
        _ => RefusalKind::Internal,
    };
    Failure { message: error.to_string(), kind }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(error: ServiceError) -> (Code, String) {
        match ttrpc::Error::from(error) {
            ttrpc::Error::RpcStatus(status) => (status.code(), status.message),
            other => panic!("not a status: {other}"),
        }
    }

    fn refused(kind: RefusalKind) -> Code {
        status(ServiceError::Refused(Refusal { kind, message: "container c1: no".to_owned() })).0
    }

    /// CONTRACT §9: CRI ignores NotFound from Kill, WithProcessKill takes FailedPrecondition as "nothing to
    /// kill".
    #[test]
    fn refusals_keep_their_kind() {
        assert_eq!(refused(RefusalKind::NotFound), Code::NOT_FOUND);
        assert_eq!(refused(RefusalKind::FailedPrecondition), Code::FAILED_PRECONDITION);
        assert_eq!(refused(RefusalKind::AlreadyExists), Code::ALREADY_EXISTS);
        assert_eq!(refused(RefusalKind::Internal), Code::UNKNOWN);
    }

    /// Trap 23: a caller that is a moment late finds nothing to kill, and that is no failure.
    #[test]
    fn trap_23_a_pod_that_has_ended_has_no_containers() {
        assert_eq!(status(ServiceError::ShuttingDown).0, Code::NOT_FOUND);
    }

    /// CONTRACT §9: Unimplemented from Create makes containerd 2.x fall back to task v2, so options the shim
    /// does not know must travel under another code.
    #[test]
    fn unknown_options_are_not_unimplemented() {
        let source = OptionsError::UnknownType { type_url: "acme.Options".into() };
        assert_eq!(
            status(ServiceError::Options { container: "c1".into(), source }).0,
            Code::INVALID_ARGUMENT
        );
        assert_eq!(status(ServiceError::Unsupported { what: "Checkpoint" }).0, Code::UNIMPLEMENTED);
    }

    /// The text ends up in kubelet events as it is.
    #[test]
    fn texts_travel_unchanged() {
        let message = "OCI runtime create failed: exec: \"nope\": executable file not found in $PATH";
        let refusal = Refusal { kind: RefusalKind::Internal, message: message.to_owned() };
        assert_eq!(status(ServiceError::Refused(refusal)), (Code::UNKNOWN, message.to_owned()));
    }
}
