//! Who may connect to a pod's socket: root, or the user that the shim runs as (DESIGN §6). containerd is one of them.
//!
//! Owns this check, for all services of the socket, and that a caller gets its answer without a free descriptor too: containerd makes a
//! connection for each container.

use std::fs::File;
use std::io;
use std::os::unix::net::UnixListener as StdListener;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;
use nix::errno::Errno;
use nix::unistd::geteuid;
use tokio::net::{UnixListener, UnixStream};
use tokio::time::Sleep;
use ttrpc::asynchronous::transport::Listener;

/// How long the listener rests after a failed accept: the same connection would fail at once again.
const PAUSE: Duration = Duration::from_millis(200);
/// How many descriptors are kept for connections. All but the last serve callers, who get the reason of what fails; the last one
/// is lent to a connection that is closed at once, so that no caller waits for its own deadline.
const RESERVE: usize = 3;

/// The connections of trusted peers; others are closed and logged.
struct TrustedPeers {
    listener: UnixListener,
    reserve: Vec<File>,
    pause: Option<Pin<Box<Sleep>>>,
}

/// The listener for a ttrpc server.
///
/// # Errors
/// The system's answer.
pub(crate) fn listener(listener: StdListener) -> io::Result<Listener> {
    listener.set_nonblocking(true)?;
    let listener = UnixListener::from_std(listener)?;
    Ok(Listener::new(TrustedPeers { listener, reserve: Vec::with_capacity(RESERVE), pause: None }))
}

/// What an accept without a free descriptor came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Spare {
    /// One of the reserve is free now.
    Freed,
    /// The waiting connection was closed.
    Refused,
}

impl TrustedPeers {
    /// Opens what was used up, as far as descriptors are free by now.
    fn fill_reserve(&mut self) {
        while self.reserve.len() < RESERVE {
            match File::open("/dev/null") {
                Ok(file) => self.reserve.push(file),
                Err(_) => return,
            }
        }
    }

    fn spend_reserve(&mut self, context: &mut Context<'_>) -> Option<Spare> {
        drop(self.reserve.pop()?);
        if !self.reserve.is_empty() {
            return Some(Spare::Freed);
        }
        // Its descriptor is free again when this returns.
        drop(self.listener.poll_accept(context));
        self.fill_reserve();
        Some(Spare::Refused)
    }

    fn rest(&mut self, error: &io::Error) {
        tracing::warn!(%error, "cannot accept a connection: the shim tries again in a moment");
        self.pause = Some(Box::pin(tokio::time::sleep(PAUSE)));
    }
}

fn has_no_descriptor(error: &io::Error) -> bool {
    let errno = error.raw_os_error().map(Errno::from_raw);
    matches!(errno, Some(Errno::EMFILE | Errno::ENFILE))
}

impl Stream for TrustedPeers {
    type Item = io::Result<UnixStream>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        // Not in the loop: what an accept has just freed is for the connection.
        self.fill_reserve();
        loop {
            if let Some(pause) = &mut self.pause {
                ready!(pause.as_mut().poll(context));
                self.pause = None;
            }
            match ready!(self.listener.poll_accept(context)) {
                Ok((stream, _)) => match stream.peer_cred() {
                    Ok(peer) if is_trusted(peer.uid()) => return Poll::Ready(Some(Ok(stream))),
                    Ok(peer) => {
                        tracing::warn!(uid = peer.uid(), pid = ?peer.pid(), "a connection is refused")
                    }
                    Err(error) => tracing::warn!(%error, "a connection is refused: its peer is unknown"),
                },
                Err(error) if has_no_descriptor(&error) => match self.spend_reserve(context) {
                    Some(Spare::Freed) => {
                        tracing::warn!(%error, left = self.reserve.len(), "a connection gets a descriptor of the reserve");
                    }
                    Some(Spare::Refused) => {
                        tracing::warn!(%error, "a connection is closed: it cannot be served")
                    }
                    None => self.rest(&error),
                },
                Err(error) => self.rest(&error),
            }
        }
    }
}

fn is_trusted(uid: u32) -> bool {
    uid == 0 || uid == geteuid().as_raw()
}
