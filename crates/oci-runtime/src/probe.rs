//! Probes: does a container answer? The `exec:`, `tcp:`, `http:` and `file:` gates of rule U2.
//!
//! One call is one attempt. Period, delay and thresholds are `pod-lifecycle`'s.

use std::{
    fmt, io,
    net::{IpAddr, SocketAddr},
    os::fd::OwnedFd,
    time::Duration,
};

use nix::{
    ifaddrs::getifaddrs,
    sched::{CloneFlags, setns},
    sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, socket},
};
use tokio::net::{TcpSocket, TcpStream};
use tracing::warn;

use crate::{
    helper_thread,
    process::{Process, SignalNumber},
    runtime::Container,
    stdio::ChildStdio,
};

mod file;
mod http;
#[cfg(test)]
mod tests;

pub use file::{FileLooks, file};
pub use http::http;
#[cfg(any(test, fuzzing))]
pub(crate) use http::status_of;

/// Result of one attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeResult {
    /// The container answered.
    Success,
    /// It did not; the text says why, ready for a person.
    Failure(String),
}

impl fmt::Display for ProbeResult {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Success => formatter.write_str("succeeded"),
            Self::Failure(reason) => formatter.write_str(reason),
        }
    }
}

/// Runs a process in the container and succeeds when it ends with 0 within `timeout`.
///
/// `process` is an OCI process as JSON; its streams are `/dev/null`. At the timeout it is killed. Not
/// cancel-safe: run it with `spawn_local`, or a process may be left in the container.
pub async fn exec(container: &Container, exec_id: &str, process: &[u8], timeout: Duration) -> ProbeResult {
    let launched = match container.exec(exec_id, process, ChildStdio::null(), None).await {
        Ok(launched) => launched,
        Err(error) => return ProbeResult::Failure(error.to_string()),
    };
    match tokio::time::timeout(timeout, launched.exit).await {
        Ok(exit) if exit.code == 0 => ProbeResult::Success,
        Ok(exit) => ProbeResult::Failure(match exit.signal {
            Some(signal) => format!("killed by signal {signal}"),
            None => format!("exit status {}", exit.code),
        }),
        Err(_) => {
            if let Err(error) = launched.process.signal(SignalNumber::KILL) {
                warn!(container = container.id(), %error, "cannot kill a probe that takes too long");
            }
            ProbeResult::Failure(timed_out(timeout))
        }
    }
}

/// Connects to `address` inside the network namespace of `process` and succeeds when somebody accepts.
///
/// The address must be local to that namespace: annotations are written by pod authors, and the shim must
/// not become their port scanner of the node (DESIGN §6). Cancel-safe.
pub async fn tcp(process: &Process, address: SocketAddr, timeout: Duration) -> ProbeResult {
    match tokio::time::timeout(timeout, connect(process, address)).await {
        Ok(Ok(_)) => ProbeResult::Success,
        Ok(Err(reason)) => ProbeResult::Failure(format!("{} {reason}", name("tcp", address))),
        Err(_) => ProbeResult::Failure(format!("{} {}", name("tcp", address), timed_out(timeout))),
    }
}

async fn connect(process: &Process, address: SocketAddr) -> Result<TcpStream, String> {
    let namespace = match process.open_namespace("net") {
        Ok(namespace) => OwnedFd::from(namespace),
        Err(error) => return Err(format!("cannot be probed: no network namespace: {error}")),
    };
    let socket = helper_thread::run("probe", move || socket_in(&namespace, address)).await.map_err(
        |error| match error.raw_os_error() {
            Some(libc::EADDRNOTAVAIL) => "is not an address of the container".to_owned(),
            _ => format!("cannot be probed: {error}"),
        },
    )?;
    // A socket keeps the namespace it was made in, whichever thread uses it.
    match TcpSocket::from_std_stream(socket.into()).connect(address).await {
        Ok(stream) => Ok(stream),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Err("refused".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Makes a non-blocking TCP socket in a network namespace. Moves the calling thread there for good.
fn socket_in(namespace: &OwnedFd, address: SocketAddr) -> io::Result<OwnedFd> {
    setns(namespace, CloneFlags::CLONE_NEWNET)?;
    if !address.ip().is_loopback() {
        require_local(address.ip())?;
    }
    tcp_socket(address.ip())
}

/// Fails with EADDRNOTAVAIL when no interface of the thread's network namespace has the address.
///
/// Trying to bind would ask the same, unless the pod sets `net.ipv4.ip_nonlocal_bind`.
fn require_local(address: IpAddr) -> io::Result<()> {
    let is_it = |of_interface: SockaddrStorage| match address {
        IpAddr::V4(ip) => of_interface.as_sockaddr_in().is_some_and(|one| one.ip() == ip),
        IpAddr::V6(ip) => of_interface.as_sockaddr_in6().is_some_and(|one| one.ip() == ip),
    };
    let local = getifaddrs()?.filter_map(|interface| interface.address).any(is_it);
    if local { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::EADDRNOTAVAIL)) }
}

fn tcp_socket(address: IpAddr) -> io::Result<OwnedFd> {
    let family = match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    Ok(socket(family, SockType::Stream, flags, None)?)
}

/// `tcp:15021` for the default host, as in the annotation; with the address otherwise.
fn name(gate: &str, address: SocketAddr) -> String {
    match address.ip() {
        IpAddr::V4(ip) if ip == std::net::Ipv4Addr::LOCALHOST => format!("{gate}:{}", address.port()),
        _ => format!("{gate}:{address}"),
    }
}

fn timed_out(timeout: Duration) -> String {
    format!("timed out after {timeout:?}")
}
