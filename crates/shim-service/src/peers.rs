//! Who may connect to a pod's socket: root, or the user that the shim runs as (DESIGN §6). containerd is one of them.
//!
//! Owns this check, for both services of the socket.

use std::io;
use std::os::unix::net::UnixListener as StdListener;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures_core::Stream;
use nix::unistd::geteuid;
use tokio::net::{UnixListener, UnixStream};
use tokio::time::Sleep;
use ttrpc::asynchronous::transport::Listener;

/// How long the listener rests after a failed accept: without free descriptors the same connection would fail at once again.
const PAUSE: Duration = Duration::from_millis(200);

/// The connections of trusted peers; others are closed and logged.
struct TrustedPeers {
    listener: UnixListener,
    pause: Option<Pin<Box<Sleep>>>,
}

/// The listener for a ttrpc server.
///
/// # Errors
/// The system's answer.
pub(crate) fn listener(listener: StdListener) -> io::Result<Listener> {
    listener.set_nonblocking(true)?;
    Ok(Listener::new(TrustedPeers { listener: UnixListener::from_std(listener)?, pause: None }))
}

impl Stream for TrustedPeers {
    type Item = io::Result<UnixStream>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
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
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection: the shim tries again in a moment");
                    self.pause = Some(Box::pin(tokio::time::sleep(PAUSE)));
                }
            }
        }
    }
}

fn is_trusted(uid: u32) -> bool {
    uid == 0 || uid == geteuid().as_raw()
}
