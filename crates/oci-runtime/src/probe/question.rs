//! What a probe asks of a container.
//!
//! Owns how a question is asked, in a process of its own, and the words for its failure.

use processes::Process;

use super::connect::{self, Endpoint, HomeNetwork};
use super::deadline::Failed;
use super::file;
use super::grpc;
use super::http;

/// One attempt's question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Question {
    /// Does a program accept a connection there? The time covers all of the endpoint's addresses.
    Tcp(Endpoint),
    /// Does the first address that accepts answer `GET path` with a status from 200 to 399?
    ///
    /// A redirect counts as success and is not followed: it could lead anywhere (DESIGN §6).
    Http {
        /// Where.
        endpoint: Endpoint,
        /// With its query.
        path: String,
    },
    /// Does the health service of the first address that accepts answer SERVING?
    Grpc {
        /// Its port.
        port: u16,
        /// The empty name asks about the whole server.
        service: String,
    },
    /// Does something exist at this path in the container's root?
    ///
    /// Links are followed only inside that root, and magic links (`/proc/<pid>/root`) never, so no link that a container
    /// plants in a shared volume leads out of it (DESIGN §6). Mounts are those that the process sees.
    File(String),
}

impl Question {
    /// Asks it of a process, in a process that may wait, and may enter other namespaces for good.
    pub(super) fn ask(
        &self,
        process: &Process,
        home: HomeNetwork,
        deadline: std::time::Duration,
    ) -> Result<(), Failed> {
        match self {
            Self::Tcp(endpoint) => connect::connect(process, *endpoint, home, deadline).map(drop),
            Self::Http { endpoint, path } => {
                let (connection, address) = connect::connect(process, *endpoint, home, deadline)?;
                http::check(connection, address, path)
            }
            Self::Grpc { port, service } => {
                let endpoint = Endpoint { host: None, port: *port };
                let (connection, address) = connect::connect(process, endpoint, home, deadline)?;
                grpc::check(connection, address, service)
            }
            Self::File(path) => file::exists(process, path, deadline),
        }
    }

    /// The failure as users see it.
    pub(super) fn failure(&self, why: &str) -> String {
        match self {
            Self::Tcp(endpoint) => format!("tcp:{endpoint} {why}"),
            Self::Http { endpoint, path } => format!("http:{endpoint}{path}: {why}"),
            Self::Grpc { port, service } => {
                let slash = if service.is_empty() { "" } else { "/" };
                format!("grpc:{port}{slash}{service}: {why}")
            }
            Self::File(path) => format!("file:{path} {why}"),
        }
    }

    /// Why it fails if the last attempt has not ended.
    pub(super) fn unanswered(&self) -> &'static str {
        match self {
            Self::File(_) => "cannot be looked for: its file system has not answered the last look",
            _ => "cannot be probed: the last attempt has not ended",
        }
    }

    /// Why it fails if the process has ended.
    pub(super) fn gone(&self) -> &'static str {
        match self {
            Self::File(_) => "is not there",
            _ => "cannot be probed: the container has no process",
        }
    }
}
