//! What a request can fail with, and the one place that turns it into a ttrpc status code.
//!
//! Owns the codes, which are a contract: containerd and the kubelet act on them (CONTRACT §9). No other file may build a ttrpc
//! status: an error must not travel under two codes.

use oci_runtime::runtime::RuntimeError;
use pod_lifecycle::{Failure, Refusal, RefusalKind};
use thiserror::Error;
use ttrpc::proto::Code;

use crate::options::OptionsError;

/// Why a request was not served.
#[derive(Debug, Error)]
pub enum ServiceError {
    /// The pod refused it, or its operation failed.
    #[error(transparent)]
    Refused(Refusal),
    /// The request, the annotations or the spec are wrong: the same request would fail again.
    #[error("container {container}: {message}")]
    Invalid {
        /// The container's id.
        container: String,
        /// What is wrong and what would be right.
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
    /// A system call failed.
    #[error("container {container}: {operation}: {source}")]
    System {
        /// The container's id.
        container: String,
        /// What was attempted.
        operation: &'static str,
        /// The system's answer.
        source: std::io::Error,
    },
    /// The node is being drained (N7): no container is created on it.
    #[error("container {container}: node is draining ({file} is there; podshim drain --undo removes it)")]
    Draining {
        /// The container's id.
        container: String,
        /// The file that marks the drain.
        file: String,
    },
    /// The pod's last container is gone and its owner has ended: the shim is about to exit.
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
                // As containerd's own shim answers when its OCI runtime fails.
                RefusalKind::Internal => Code::UNKNOWN,
            },
            Self::Invalid { .. } | Self::Options { .. } => Code::INVALID_ARGUMENT,
            Self::System { .. } => Code::UNKNOWN,
            Self::Draining { .. } => Code::UNAVAILABLE,
            // containerd reads a closed connection as NotFound too, which it would find a moment later. Its CRI takes that for
            // "stopped already", and fails StopPodSandbox for any other code (trap 23).
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

/// A failed operation, for the pod; the error's text is the caller's answer.
pub(crate) fn failure(error: impl std::fmt::Display) -> Failure {
    Failure { message: error.to_string(), kind: RefusalKind::Internal }
}

/// A failed call of the OCI runtime, for the pod.
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

    /// Trap 23: a caller that comes a moment late finds nothing to kill, which is no error.
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
    }

    /// The kubelet's events show the text as it is.
    #[test]
    fn texts_travel_unchanged() {
        let message = "OCI runtime create failed: exec: \"nope\": executable file not found in $PATH";
        let refusal = Refusal { kind: RefusalKind::Internal, message: message.to_owned() };
        assert_eq!(status(ServiceError::Refused(refusal)), (Code::UNKNOWN, message.to_owned()));
    }
}
