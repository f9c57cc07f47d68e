//! What can be wrong with a gate: its kind, address, path and pattern. Owns the wording; `parse` finds them.

use std::net::IpAddr;

use super::option::OptionError;
use crate::command::CommandError;
use crate::nearest::Hint;
use log_pattern::PatternError;

/// What can be wrong with the value of `ready.<c>`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GateError {
    /// No such gate.
    #[error("unknown gate {gate:?}{hint}")]
    Unknown {
        /// What was written.
        gate: String,
        /// The valid ones.
        hint: Hint,
    },
    /// A gate that is one word, with something after it.
    #[error("{gate:?} stands alone: nothing may follow it")]
    StandsAlone {
        /// The gate.
        gate: &'static str,
    },
    /// A gate that needs an argument, without one.
    #[error("{gate:?} needs more: write {form:?}")]
    Incomplete {
        /// The gate.
        gate: &'static str,
        /// Its form.
        form: &'static str,
    },
    /// `exec:` with an invalid command.
    #[error(transparent)]
    Command(#[from] CommandError),
    /// An invalid option.
    #[error(transparent)]
    Option(#[from] OptionError),
    /// An address without `:port`, or with more colons than it can have.
    #[error("{address:?} is not an address: write {form:?}, with an IPv6 host in brackets")]
    Address {
        /// What was written.
        address: String,
        /// The form it has.
        form: &'static str,
    },
    /// A host that is not a literal IP. podshim resolves no names, as it is not clear in which network's view it
    /// should.
    #[error(
        "host {host:?} is not a literal IP address (leave it out: podshim tries the pod's own addresses)"
    )]
    HostNotLiteral {
        /// The host.
        host: String,
    },
    /// A literal IP that is no unicast address, so no container has it for itself.
    #[error(
        "host {host} is not an address of one container (leave it out: podshim tries the pod's own addresses)"
    )]
    HostNotUnicast {
        /// The host.
        host: IpAddr,
    },
    /// An invalid port.
    #[error("port {port:?} is not a number from 1 to 65535")]
    Port {
        /// What was written.
        port: String,
    },
    /// A URL path that cannot be sent as it is.
    #[error(
        "path {path:?} is not a URL path: it must begin with \"/\" and have no spaces or control characters"
    )]
    UrlPath {
        /// The path.
        path: String,
    },
    /// A name that no service has.
    #[error(
        "service {service:?} is not a name: write \"grpc:port\" or \"grpc:port/service\", without spaces"
    )]
    Service {
        /// What was written.
        service: String,
    },
    /// A file path that is not absolute, or that no file can have.
    #[error("path {path:?} is not absolute")]
    FilePath {
        /// The path.
        path: String,
    },
    /// `log:` with an invalid regular expression.
    #[error(transparent)]
    Pattern(#[from] PatternError),
    /// An option of a probe, for a gate that does not probe.
    #[error(
        "option {option:?} has no meaning here: podshim waits delay + fail * period for the container to report; remove it"
    )]
    NothingAsked {
        /// The option.
        option: &'static str,
    },
}
