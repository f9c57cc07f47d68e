//! One connection to a shim, for a command that asks and waits.
//!
//! Owns the bounds: whatever state a shim is in, connecting does not block and every call ends in its time. And what is
//! in a text of a pod's (`text`): nothing that a terminal takes for more than letters.

use std::io;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr, connect, socket};
use protobuf::Message;
use thiserror::Error;
use ttrpc::{Code, Error as TtrpcError};

use crate::text;
use crate::{
    EventsRequest, EventsResponse, InspectRequest, InspectResponse, StopRequest, StopResponse, SwitchRequest,
    SwitchResponse, VERSION,
};

const SERVICE: &str = "podshim.v1.Pod";

/// Why a shim has not answered.
#[derive(Debug, Error)]
pub enum ClientError {
    /// No process listens: the shim is dead.
    #[error("its shim is dead: no process listens at {}", socket.display())]
    Dead {
        /// The socket.
        socket: PathBuf,
    },
    /// It listens, and no answer came.
    #[error("its shim does not answer within {limit:?}")]
    NoAnswer {
        /// How long that was waited for.
        limit: Duration,
    },
    /// The system refused.
    #[error("cannot connect to {}: {source}", socket.display())]
    Connect {
        /// The socket.
        socket: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The shim refused, with its own words.
    #[error("{message}")]
    Refused {
        /// How it is to be taken.
        code: Code,
        /// What a person reads.
        message: String,
    },
    /// A shim that knows nothing of this API, or a newer one's answer.
    #[error("its shim speaks version {theirs} of the control API, this command {VERSION} and the one before")]
    Version {
        /// What its messages carry.
        theirs: u32,
    },
    /// The answer makes no sense, or the connection broke.
    #[error("its shim's answer cannot be used: {0}")]
    Protocol(String),
}

impl ClientError {
    /// Whether it can be that the shim is just ending, as its pod was removed: with the connection, or with a word before.
    /// Connecting once more tells.
    #[must_use]
    pub fn may_be_its_end(&self) -> bool {
        matches!(self, Self::Protocol(_) | Self::Refused { code: Code::NOT_FOUND, .. })
    }
}

/// A connection to a pod's shim.
pub struct Client {
    connection: ttrpc::Client,
    limit: Duration,
}

impl Client {
    /// Connects to the shim at that socket. `limit` is what each call may take.
    ///
    /// # Errors
    /// [`ClientError::Dead`] where no process listens, [`ClientError::NoAnswer`] where too many wait already.
    pub fn connect(socket: &Path, limit: Duration) -> Result<Self, ClientError> {
        let failed = |errno: Errno| match errno {
            Errno::ENOENT | Errno::ECONNREFUSED | Errno::ENOTDIR => {
                ClientError::Dead { socket: socket.to_owned() }
            }
            // Its backlog is full: it has not accepted anybody for a while.
            Errno::EAGAIN => ClientError::NoAnswer { limit },
            errno => ClientError::Connect { socket: socket.to_owned(), source: errno.into() },
        };
        let address = UnixAddr::new(socket).map_err(failed)?;
        let descriptor = connected(&address).map_err(failed)?;
        let connection = ttrpc::Client::new(descriptor.into_raw_fd())
            .map_err(|error| ClientError::Protocol(error.to_string()))?;
        Ok(Self { connection, limit })
    }

    /// The pod as it is now.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn inspect(&self) -> Result<InspectResponse, ClientError> {
        let request = InspectRequest { version: VERSION, ..Default::default() };
        let mut answer: InspectResponse = self.call("Inspect", &request, self.limit)?;
        text::of_inspection(&mut answer);
        understood(answer.version).map(|()| answer)
    }

    /// Begins an ordered stop of the pod, within `grace` or its own.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn stop(&self, grace: Option<Duration>) -> Result<(), ClientError> {
        let grace_ms = grace.map(milliseconds);
        let request = StopRequest { version: VERSION, grace_ms, ..Default::default() };
        let answer: StopResponse = self.call("Stop", &request, self.limit)?;
        understood(answer.version)
    }

    /// Lets the standby of a pair take over, and waits for the end of that, as long as it may take.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn switch(&self, container: &str, within: Duration) -> Result<(), ClientError> {
        let container = container.to_owned();
        let request = SwitchRequest { version: VERSION, container, ..Default::default() };
        let answer: SwitchResponse = self.call("Switch", &request, within)?;
        understood(answer.version)
    }

    /// What has happened after the event of that number; waits for something for so long.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn events(&self, after: u64, wait: Duration) -> Result<EventsResponse, ClientError> {
        let request =
            EventsRequest { version: VERSION, after, wait_ms: milliseconds(wait), ..Default::default() };
        let limit = self.limit.saturating_add(wait);
        let mut answer: EventsResponse = self.call("Events", &request, limit)?;
        text::of_events(&mut answer);
        understood(answer.version).map(|()| answer)
    }

    fn call<T: Message>(
        &self,
        method: &str,
        request: &impl Message,
        limit: Duration,
    ) -> Result<T, ClientError> {
        let unusable = |error: protobuf::Error| ClientError::Protocol(error.to_string());
        let request = ttrpc::Request {
            service: SERVICE.to_owned(),
            method: method.to_owned(),
            timeout_nano: i64::try_from(limit.as_nanos()).unwrap_or(i64::MAX),
            payload: request.write_to_bytes().map_err(unusable)?,
            ..Default::default()
        };
        match self.connection.request(request) {
            Ok(response) => T::parse_from_bytes(&response.payload).map_err(unusable),
            Err(TtrpcError::RpcStatus(status)) => Err(match status.code() {
                // A release of podshim without this API, or another shim.
                Code::UNIMPLEMENTED => ClientError::Version { theirs: 0 },
                Code::DEADLINE_EXCEEDED => ClientError::NoAnswer { limit },
                code => ClientError::Refused { code, message: text::printable(&status.message) },
            }),
            // Of the library's own making, when its deadline has passed.
            Err(TtrpcError::Others(text)) if text.contains("timeout") => Err(ClientError::NoAnswer { limit }),
            Err(error) => Err(ClientError::Protocol(error.to_string())),
        }
    }
}

fn connected(address: &UnixAddr) -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let descriptor = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    connect(descriptor.as_raw_fd(), address)?;
    // Only connecting must not block: the library reads when there is something.
    fcntl(&descriptor, FcntlArg::F_SETFL(OFlag::empty()))?;
    Ok(descriptor)
}

/// This release's version and the one before: packages are upgraded under live pods.
fn understood(theirs: u32) -> Result<(), ClientError> {
    let known = VERSION.saturating_sub(1).max(1)..=VERSION;
    if known.contains(&theirs) { Ok(()) } else { Err(ClientError::Version { theirs }) }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use nix::sys::socket::{Backlog, bind, listen};

    use super::*;

    const LIMIT: Duration = Duration::from_millis(100);

    /// A dead shim's socket, one that never answers and one that does not even accept: each is recognised, in time.
    #[test]
    fn no_shim_holds_up_its_caller() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("shim");
        assert!(matches!(Client::connect(&path, LIMIT), Err(ClientError::Dead { .. })));
        let address = UnixAddr::new(&path).unwrap();
        let server = socket(AddressFamily::Unix, SockType::Stream, SockFlag::empty(), None).unwrap();
        bind(server.as_raw_fd(), &address).unwrap();
        assert!(matches!(Client::connect(&path, LIMIT), Err(ClientError::Dead { .. })));
        listen(&server, Backlog::new(1).unwrap()).unwrap();
        let first = Client::connect(&path, LIMIT).unwrap();
        assert!(matches!(first.inspect(), Err(ClientError::NoAnswer { .. })));
        let _second = Client::connect(&path, LIMIT).unwrap();
        let third = Client::connect(&path, LIMIT).err();
        assert!(matches!(third, Some(ClientError::NoAnswer { .. })), "{third:?}");
        drop(server);
        assert!(matches!(Client::connect(&path, LIMIT), Err(ClientError::Dead { .. })));
    }

    /// Packages are upgraded under live pods: this release and the one before understand each other.
    #[test]
    fn other_versions_are_told() {
        assert!(understood(VERSION).is_ok());
        for theirs in [0, VERSION + 1, VERSION + 7] {
            let error = understood(theirs).unwrap_err().to_string();
            assert!(error.contains(&format!("version {theirs}")), "{error}");
        }
    }
}
