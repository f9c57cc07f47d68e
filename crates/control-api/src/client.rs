//! One connection to a shim, for a command that asks and waits.
//!
//! Owns the timeouts: whatever state a shim is in, connecting may never block, and every call ends in time. Every text of an
//! answer comes out of here printable (`text`).

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
    EventsRequest, EventsResponse, InspectRequest, InspectResponse, RestartRequest, RestartResponse,
    StopRequest, StopResponse, SwitchRequest, SwitchResponse, VERSION,
};

pub(crate) const SERVICE: &str = "podshim.v1.Pod";

/// Why a shim has not answered.
#[derive(Debug, Error)]
pub enum ClientError {
    /// No process listens: the shim is dead.
    #[error("its shim is dead: no process listens at {}", socket.display())]
    Dead {
        /// The socket.
        socket: PathBuf,
    },
    /// A process listens, and no answer came in time.
    #[error("its shim does not answer within {limit:?}")]
    NoAnswer {
        /// The time.
        limit: Duration,
    },
    /// The system call failed.
    #[error("cannot connect to {}: {source}", socket.display())]
    Connect {
        /// The socket.
        socket: PathBuf,
        /// The system's answer.
        source: io::Error,
    },
    /// The shim refused.
    #[error("{message}")]
    Refused {
        /// The kind of refusal.
        code: Code,
        /// The shim's text.
        message: String,
    },
    /// A shim without this API, or one of a newer release than this command understands.
    #[error("its shim speaks version {theirs} of the control API, this command {VERSION} and the one before")]
    Version {
        /// The version in its messages; 0 without this API.
        theirs: u32,
    },
    /// A shim of an earlier release: a method was added since, within the same version.
    #[error("its shim is of an earlier release of podshim, which cannot do this yet (it has no {method})")]
    NoMethod {
        /// The method of the control API.
        method: &'static str,
    },
    /// The answer makes no sense, or the connection broke.
    #[error("its shim's answer cannot be used: {0}")]
    Protocol(String),
}

impl ClientError {
    /// Whether the shim may just be ending because its pod was removed: the connection breaks, or it answers NotFound before.
    /// Connecting once more shows whether it has ended.
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
    /// Connects to the shim at that socket. `limit` is how long each call may take.
    ///
    /// # Errors
    /// [`ClientError::Dead`] if no process listens, [`ClientError::NoAnswer`] if the shim has not accepted earlier connections.
    pub fn connect(socket: &Path, limit: Duration) -> Result<Self, ClientError> {
        let descriptor = connected(socket, limit)?;
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

    /// Begins an ordered stop of the pod, within `grace` or else the pod's own time.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn stop(&self, grace: Option<Duration>) -> Result<(), ClientError> {
        let grace_ms = grace.map(milliseconds);
        let request = StopRequest { version: VERSION, grace_ms, ..Default::default() };
        let answer: StopResponse = self.call("Stop", &request, self.limit)?;
        understood(answer.version)
    }

    /// Lets the standby of a pair take over, and waits for the end of that, at most `within`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn switch(&self, container: &str, within: Duration) -> Result<(), ClientError> {
        let container = container.to_owned();
        let request = SwitchRequest { version: VERSION, container, ..Default::default() };
        let answer: SwitchResponse = self.call("Switch", &request, within)?;
        understood(answer.version)
    }

    /// Begins a restart of the whole pod in place.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn restart(&self) -> Result<(), ClientError> {
        let request = RestartRequest { version: VERSION, ..Default::default() };
        let answer: RestartResponse = self.call("Restart", &request, self.limit)?;
        understood(answer.version)
    }

    /// The events after the one of that number. If there is none yet, waits for one, at most `wait`.
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
        method: &'static str,
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
            Err(error) => Err(failure(error, method, limit)),
        }
    }
}

/// Why a call of that method has failed.
pub(crate) fn failure(error: TtrpcError, method: &'static str, limit: Duration) -> ClientError {
    match error {
        TtrpcError::RpcStatus(status) => match status.code() {
            Code::UNIMPLEMENTED => ClientError::NoMethod { method },
            // A shim without this API: ttrpc's answer for a service that the server does not have.
            Code::INVALID_ARGUMENT if status.message == format!("{SERVICE} service does not exist") => {
                ClientError::Version { theirs: 0 }
            }
            Code::DEADLINE_EXCEEDED => ClientError::NoAnswer { limit },
            code => ClientError::Refused { code, message: text::printable(&status.message) },
        },
        // The library's own errors when the deadline has passed: of its blocking client, and of the other one.
        TtrpcError::Others(text) if text.contains("timeout") || text.contains("deadline") => {
            ClientError::NoAnswer { limit }
        }
        error => ClientError::Protocol(error.to_string()),
    }
}

/// A connection to that socket. It may never block.
pub(crate) fn connected(socket: &Path, limit: Duration) -> Result<OwnedFd, ClientError> {
    let address = UnixAddr::new(socket);
    address.and_then(|address| connected_to(&address)).map_err(|errno| match errno {
        Errno::ENOENT | Errno::ECONNREFUSED | Errno::ENOTDIR => {
            ClientError::Dead { socket: socket.to_owned() }
        }
        // Its backlog is full: it has accepted no connection for a while.
        Errno::EAGAIN => ClientError::NoAnswer { limit },
        errno => ClientError::Connect { socket: socket.to_owned(), source: errno.into() },
    })
}

fn connected_to(address: &UnixAddr) -> nix::Result<OwnedFd> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let descriptor = socket(AddressFamily::Unix, SockType::Stream, flags, None)?;
    connect(descriptor.as_raw_fd(), address)?;
    // Only `connect` must not block: from here on the library polls before it reads.
    fcntl(&descriptor, FcntlArg::F_SETFL(OFlag::empty()))?;
    Ok(descriptor)
}

/// Accepts this release's version and the one before: packages are upgraded while pods run.
pub(crate) fn understood(theirs: u32) -> Result<(), ClientError> {
    let known = VERSION.saturating_sub(1).max(1)..=VERSION;
    if known.contains(&theirs) { Ok(()) } else { Err(ClientError::Version { theirs }) }
}

pub(crate) fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::mpsc;
    use std::thread;

    use nix::sys::socket::{Backlog, bind, listen};
    use ttrpc::asynchronous::{Server, Service};

    use super::*;

    const LIMIT: Duration = Duration::from_millis(100);

    /// A dead shim's socket, one that never answers and one that accepts no connection: each is recognised in time.
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

    /// Packages are upgraded while pods run: this release and the one before understand each other.
    #[test]
    fn other_versions_are_reported() {
        assert!(understood(VERSION).is_ok());
        for theirs in [0, VERSION + 1, VERSION + 7] {
            let error = understood(theirs).unwrap_err().to_string();
            assert!(error.contains(&format!("version {theirs}")), "{error}");
        }
    }

    /// A shim that serves these services, each without a method, and a client of it.
    fn client_of(services: &[&str], test: impl FnOnce(Client)) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("shim");
        let address = format!("unix://{}", path.display());
        let empty = |name: &&str| {
            let service = Service { methods: HashMap::new(), streams: HashMap::new() };
            HashMap::from([((*name).to_owned(), service)])
        };
        let services: Vec<_> = services.iter().map(empty).collect();
        let (ready, is_ready) = mpsc::channel();
        let (done, is_done) = tokio::sync::oneshot::channel::<()>();
        let shim = thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let mut server = Server::new().bind(&address).unwrap();
                for service in services {
                    server = server.register_service(service);
                }
                server.start().await.unwrap();
                ready.send(()).unwrap();
                let _ = is_done.await;
            });
        });
        is_ready.recv().unwrap();
        test(Client::connect(&path, Duration::from_secs(10)).unwrap());
        drop(done);
        shim.join().unwrap();
    }

    /// Methods are added within a version: a shim of an earlier release lacks one, and speaks this version all the same.
    #[test]
    fn a_missing_method_is_no_other_version() {
        client_of(&["containerd.task.v2.Task", SERVICE], |client| {
            let error = client.switch("app", Duration::from_secs(10)).unwrap_err();
            assert!(matches!(&error, ClientError::NoMethod { method: "Switch" }), "{error:?}");
            assert!(error.to_string().contains("Switch"), "{error}");
        });
    }

    #[test]
    fn a_shim_without_this_api_is_recognised() {
        client_of(&["containerd.task.v2.Task"], |client| {
            let error = client.inspect().unwrap_err();
            assert!(matches!(error, ClientError::Version { theirs: 0 }), "{error:?}");
        });
    }
}
