//! A connection to a shim for a program that waits for many shims at once, on its async runtime.
//!
//! Owns the timeouts, as `client` does for a command that asks and waits: connecting ends in time, and so does every call. Every
//! text of an answer comes out of here printable (`text`). Decides nothing of what an answer means.

use std::io::{self, ErrorKind};
use std::path::Path;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::time::timeout;
use ttrpc::asynchronous::Client as Connection;
use ttrpc::asynchronous::transport::Socket;
use ttrpc::context;

use crate::client::{ClientError, failure, milliseconds, understood};
use crate::{
    EventsRequest, EventsResponse, InspectRequest, InspectResponse, KubeletsOwnRequest, PodClient,
    RestartRequest, VERSION, text,
};

/// A connection to a pod's shim. Its clones share it.
#[derive(Clone)]
pub struct WaitingClient {
    pod: PodClient,
    limit: Duration,
}

impl WaitingClient {
    /// Connects to the shim at that socket. `limit` is how long that and each call may take.
    ///
    /// # Errors
    /// [`ClientError::Dead`] if no process listens, [`ClientError::NoAnswer`] if the shim has not accepted earlier connections.
    pub async fn connect(socket: &Path, limit: Duration) -> Result<Self, ClientError> {
        let failed = |error: io::Error| match error.kind() {
            ErrorKind::NotFound | ErrorKind::ConnectionRefused | ErrorKind::NotADirectory => {
                ClientError::Dead { socket: socket.to_owned() }
            }
            // Its backlog is full: it has accepted no connection for a while.
            ErrorKind::WouldBlock => ClientError::NoAnswer { limit },
            _ => ClientError::Connect { socket: socket.to_owned(), source: error },
        };
        let stream = timeout(limit, UnixStream::connect(socket)).await;
        let stream = stream.map_err(|_| ClientError::NoAnswer { limit })?.map_err(failed)?;
        Ok(Self { pod: PodClient::new(Connection::new(Socket::new(stream))), limit })
    }

    /// The pod as it is now.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn inspect(&self) -> Result<InspectResponse, ClientError> {
        let request = InspectRequest { version: VERSION, ..Default::default() };
        let called = self.pod.inspect(context::with_duration(self.limit), &request).await;
        let mut answer = called.map_err(|error| failure(error, "Inspect", self.limit))?;
        text::of_inspection(&mut answer);
        understood(answer.version).map(|()| answer)
    }

    /// Begins a restart of the whole pod in place: one for each value of `request`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn restart(&self, request: &str) -> Result<(), ClientError> {
        let request = RestartRequest { version: VERSION, request: request.to_owned(), ..Default::default() };
        let called = self.pod.restart(context::with_duration(self.limit), &request).await;
        understood(called.map_err(|error| failure(error, "Restart", self.limit))?.version)
    }

    /// Names init and ephemeral containers of the pod's object.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn kubelets_own(&self, names: Vec<String>) -> Result<(), ClientError> {
        let request = KubeletsOwnRequest { version: VERSION, names, ..Default::default() };
        let called = self.pod.kubelets_own(context::with_duration(self.limit), &request).await;
        understood(called.map_err(|error| failure(error, "KubeletsOwn", self.limit))?.version)
    }

    /// The events after the one of that number. If there is none yet, waits for one, at most `wait`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn events(&self, after: u64, wait: Duration) -> Result<EventsResponse, ClientError> {
        let request =
            EventsRequest { version: VERSION, after, wait_ms: milliseconds(wait), ..Default::default() };
        let limit = self.limit.saturating_add(wait);
        let called = self.pod.events(context::with_duration(limit), &request).await;
        let mut answer = called.map_err(|error| failure(error, "Events", limit))?;
        text::of_events(&mut answer);
        understood(answer.version).map(|()| answer)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use nix::sys::socket::{AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket};

    use super::*;

    const LIMIT: Duration = Duration::from_millis(100);

    /// A dead shim's socket, and one that never answers: each is recognised in time.
    #[tokio::test]
    async fn no_shim_holds_up_its_caller() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("shim");
        let connect = || WaitingClient::connect(&path, LIMIT);
        assert!(matches!(connect().await, Err(ClientError::Dead { .. })));
        let server = socket(AddressFamily::Unix, SockType::Stream, SockFlag::empty(), None).unwrap();
        bind(server.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
        assert!(matches!(connect().await, Err(ClientError::Dead { .. })));
        listen(&server, Backlog::new(1).unwrap()).unwrap();
        let client = connect().await.unwrap();
        assert!(matches!(client.inspect().await, Err(ClientError::NoAnswer { .. })));
        let waits = client.events(0, LIMIT).await;
        assert!(matches!(waits, Err(ClientError::NoAnswer { .. })), "{waits:?}");
        drop(server);
        assert!(matches!(connect().await, Err(ClientError::Dead { .. })));
    }
}
