//! Who may connect to a pod's socket: root, or whoever the shim runs as (DESIGN §6). containerd is one of them.

use std::io;
use std::os::unix::net::UnixListener as StdListener;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_core::Stream;
use nix::unistd::geteuid;
use tokio::net::{UnixListener, UnixStream};
use ttrpc::asynchronous::transport::Listener;

/// The connections of those who may; others are closed without a word.
struct Trusted(UnixListener);

/// The listener for a ttrpc server.
///
/// # Errors
/// The system's answer.
pub(crate) fn listener(listener: StdListener) -> io::Result<Listener> {
    listener.set_nonblocking(true)?;
    Ok(Listener::new(Trusted(UnixListener::from_std(listener)?)))
}

impl Stream for Trusted {
    type Item = io::Result<UnixStream>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            match ready!(self.0.poll_accept(context)) {
                Ok((stream, _)) => match stream.peer_cred() {
                    Ok(peer) if is_trusted(peer.uid()) => return Poll::Ready(Some(Ok(stream))),
                    Ok(peer) => {
                        tracing::warn!(uid = peer.uid(), pid = ?peer.pid(), "a connection is refused")
                    }
                    Err(error) => tracing::warn!(%error, "a connection is refused: its peer is unknown"),
                },
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
        }
    }
}

fn is_trusted(uid: u32) -> bool {
    uid == 0 || uid == geteuid().as_raw()
}
