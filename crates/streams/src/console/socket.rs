//! The socket over which the OCI runtime hands out a terminal.
//!
//! Owns the socket's place in the file system and the descriptor protocol.

use std::io::{self, IoSliceMut};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::cmsg_space;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg};
use tokio::io::Interest;
use tokio::net::UnixListener;

use super::error::ConsoleError;

/// Longest path of a unix socket (`sun_path` without its closing zero).
const SOCKET_PATH_LONGEST: usize = 107;

/// The socket over which the runtime hands out the pty master (`--console-socket`).
///
/// It is in a directory of its own that only root can enter. Dropping this removes both, and dropping the last one
/// removes `base`.
#[derive(Debug)]
pub struct ConsoleSocket {
    listener: UnixListener,
    path: PathBuf,
    directory: PathBuf,
    base: PathBuf,
}

impl ConsoleSocket {
    /// Makes a socket below `base`, which is created if needed. No other process may use the same `base`: it is
    /// removed with its last socket.
    ///
    /// `base` must be short: bundle paths of CRI containers exceed the 107 bytes a socket address holds.
    ///
    /// # Errors
    /// The directory or the socket cannot be made.
    pub fn bind(base: &Path) -> Result<Self, ConsoleError> {
        let bind = || {
            std::fs::create_dir_all(base)?;
            let directory = nix::unistd::mkdtemp(&base.join("pty-XXXXXX"))?;
            let path = directory.join("s");
            let listen = || {
                if path.as_os_str().len() > SOCKET_PATH_LONGEST {
                    let reason = format!("the path exceeds {SOCKET_PATH_LONGEST} bytes");
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
                }
                let listener = UnixListener::bind(&path)?;
                std::fs::set_permissions(&path, PermissionsExt::from_mode(0o600))?;
                Ok(listener)
            };
            match listen() {
                Ok(listener) => Ok(Self { listener, path: path.clone(), directory, base: base.to_owned() }),
                Err(error) => {
                    let _ = std::fs::remove_dir_all(&directory);
                    let _ = std::fs::remove_dir(base);
                    Err(error)
                }
            }
        };
        bind().map_err(|source| ConsoleError::Socket { directory: base.to_owned(), source })
    }

    /// The path to give to the runtime.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Receives the pty master, waiting at most `limit`. Cancel-safe until the connection is accepted.
    ///
    /// Call it after the runtime's command succeeded: the descriptor is in the socket's queue by then.
    ///
    /// # Errors
    /// None comes in time, or something else does.
    pub async fn receive(&self, limit: Duration) -> Result<OwnedFd, ConsoleError> {
        let receive = async {
            let (stream, _) = self.listener.accept().await?;
            stream.async_io(Interest::READABLE, || receive_descriptor(stream.as_raw_fd())).await
        };
        match tokio::time::timeout(limit, receive).await {
            Ok(received) => received.map_err(ConsoleError::Receive),
            Err(_) => Err(ConsoleError::Receive(io::Error::from(io::ErrorKind::TimedOut))),
        }
    }
}

impl Drop for ConsoleSocket {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
        let _ = std::fs::remove_dir(&self.directory);
        // Fails if it is not empty: another process of the pod is being made.
        let _ = std::fs::remove_dir(&self.base);
    }
}

fn receive_descriptor(socket: RawFd) -> io::Result<OwnedFd> {
    let mut name = [0; 256];
    let mut buffers = [IoSliceMut::new(&mut name)];
    let mut control = cmsg_space!([RawFd; 4]);
    let message = recvmsg::<()>(socket, &mut buffers, Some(&mut control), MsgFlags::MSG_CMSG_CLOEXEC)?;
    let mut received = Vec::new();
    for control in message.cmsgs()? {
        if let ControlMessageOwned::ScmRights(descriptors) = control {
            // SAFETY: the kernel made these descriptors for this call alone.
            received.extend(descriptors.into_iter().map(|fd| unsafe { OwnedFd::from_raw_fd(fd) }));
        }
    }
    // The runtime spec's console protocol says exactly one; all others are closed here.
    match (received.pop(), received.is_empty()) {
        (Some(master), true) if is_terminals_master(&master) => Ok(master),
        (Some(_), true) => Err(io::Error::new(io::ErrorKind::InvalidData, "the descriptor is no terminal")),
        _ => Err(io::Error::new(io::ErrorKind::InvalidData, "expected one file descriptor")),
    }
}

/// Whatever else the descriptor is, a read or a close of it could wait for what a container does.
fn is_terminals_master(descriptor: &OwnedFd) -> bool {
    let mut number: libc::c_uint = 0;
    // SAFETY: TIOCGPTN writes one number, which outlives the call.
    unsafe { libc::ioctl(descriptor.as_raw_fd(), libc::TIOCGPTN, &mut number) == 0 }
}
