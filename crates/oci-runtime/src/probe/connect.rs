//! Connecting inside a container's network namespace, for `tcp:` and `http:` probes (rule U2).
//!
//! Owns which addresses are tried: only addresses of that namespace. Pod authors write the annotations, and the shim
//! must not become their port scanner of the node (DESIGN §6).

use std::{
    fmt, fs, io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::MetadataExt,
    },
};

use nix::{
    ifaddrs::getifaddrs,
    sched::{CloneFlags, setns},
    sys::{
        socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, socket},
        stat::fstat,
    },
};
use tokio::{
    net::{TcpSocket, TcpStream},
    time::Instant,
};

use crate::{helper_thread, process::Process};

/// The most addresses of the pod that are tried: a container may be able to give itself any number.
const POD_ADDRESSES_MOST: usize = 16;

/// Where a probe connects to, in the network namespace of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoint {
    /// An address of that namespace. Without one: the loopback addresses, then the others, until one accepts; in the
    /// node's own namespace (hostNetwork) only the loopback addresses.
    pub host: Option<IpAddr>,
    /// The port.
    pub port: u16,
}

impl fmt::Display for Endpoint {
    /// `15021` without a host, as in the annotation; with the host otherwise.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host {
            None => write!(formatter, "{}", self.port),
            Some(host) => write!(formatter, "{}", SocketAddr::new(host, self.port)),
        }
    }
}

/// Why an address did not accept.
#[derive(PartialEq, Eq)]
enum Refusal {
    /// No program listens there.
    Refused,
    Other(String),
}

/// Connects to the first address of `endpoint` that accepts. An address that does not answer leaves the others their
/// share of the time until `deadline`. The caller ends the last attempt. Cancel-safe.
pub(super) async fn connect(
    process: &Process,
    endpoint: Endpoint,
    deadline: Instant,
) -> Result<(TcpStream, SocketAddr), String> {
    let namespace = match process.open_namespace("net") {
        Ok(namespace) => OwnedFd::from(namespace),
        Err(error) => return Err(format!("cannot be probed: no network namespace: {error}")),
    };
    let sockets =
        helper_thread::run("probe", move || sockets_in(&namespace, endpoint)).await.map_err(|error| {
            match error.raw_os_error() {
                Some(libc::EADDRNOTAVAIL) => "is not an address of the container".to_owned(),
                _ => format!("cannot be probed: {error}"),
            }
        })?;
    let (mut left, is_only) = (sockets.len(), sockets.len() == 1);
    let mut answer = Refusal::Refused;
    for (address, socket) in sockets {
        let share = deadline.saturating_duration_since(Instant::now()) / u32::try_from(left).unwrap_or(1);
        left -= 1;
        let attempt = connect_to(socket, address);
        let attempt = match left {
            0 => attempt.await,
            _ => tokio::time::timeout(share, attempt)
                .await
                .unwrap_or_else(|_| Err(Refusal::Other("no answer".to_owned()))),
        };
        match (attempt, &answer) {
            (Ok(stream), _) => return Ok((stream, address)),
            (Err(Refusal::Other(why)), Refusal::Refused) if is_only => answer = Refusal::Other(why),
            (Err(Refusal::Other(why)), Refusal::Refused) => {
                answer = Refusal::Other(format!("{why} at {}", address.ip()));
            }
            (Err(_), _) => {}
        }
    }
    match answer {
        Refusal::Refused => Err("refused".to_owned()),
        Refusal::Other(why) => Err(why),
    }
}

/// A socket stays in the namespace in which it was made, no matter which thread uses it.
async fn connect_to(socket: OwnedFd, address: SocketAddr) -> Result<TcpStream, Refusal> {
    match TcpSocket::from_std_stream(socket.into()).connect(address).await {
        Ok(stream) => Ok(stream),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => Err(Refusal::Refused),
        Err(error) => Err(Refusal::Other(error.to_string())),
    }
}

/// Makes a non-blocking TCP socket in a network namespace for each address to be tried. The calling thread stays in
/// that namespace.
fn sockets_in(namespace: &OwnedFd, endpoint: Endpoint) -> io::Result<Vec<(SocketAddr, OwnedFd)>> {
    let owner = NamespaceOwner::of(namespace)?;
    setns(namespace, CloneFlags::CLONE_NEWNET)?;
    let addresses = addresses(endpoint.host, owner)?.into_iter();
    addresses.map(|ip| Ok((SocketAddr::new(ip, endpoint.port), tcp_socket(ip)?))).collect()
}

/// The addresses to try, in this order, in the thread's network namespace. Fails with EADDRNOTAVAIL for a host that is
/// not one of its addresses.
pub(super) fn addresses(host: Option<IpAddr>, owner: NamespaceOwner) -> io::Result<Vec<IpAddr>> {
    if let Some(host) = host {
        return match host.is_loopback() || local_addresses()?.contains(&host) {
            true => Ok(vec![host]),
            false => Err(io::Error::from_raw_os_error(libc::EADDRNOTAVAIL)),
        };
    }
    let local = local_addresses()?;
    let loopback = [IpAddr::from(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()];
    // A namespace without IPv6 has no ::1.
    let loopback = loopback.into_iter().filter(|ip| ip.is_ipv4() || local.contains(ip));
    let others = local.iter().copied().filter(|ip| owner == NamespaceOwner::Pod && is_usable(*ip));
    Ok(loopback.chain(others.take(POD_ADDRESSES_MOST)).collect())
}

/// Whose network namespace a container is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NamespaceOwner {
    Pod,
    /// It is the shim's own (hostNetwork).
    Node,
}

impl NamespaceOwner {
    /// Call it before the calling thread enters another namespace.
    pub(super) fn of(namespace: &OwnedFd) -> io::Result<Self> {
        let (own, other) = (fs::metadata("/proc/self/ns/net")?, fstat(namespace.as_fd())?);
        let is_own = (own.dev(), own.ino()) == (other.st_dev, other.st_ino);
        Ok(if is_own { Self::Node } else { Self::Pod })
    }
}

/// Whether it is not loopback, and a program can bind it without naming an interface.
fn is_usable(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => !ip.is_loopback(),
        IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unicast_link_local(),
    }
}

/// The addresses of the interfaces in the thread's network namespace.
///
/// Trying to bind would give the same answer, unless the pod sets `net.ipv4.ip_nonlocal_bind`.
fn local_addresses() -> io::Result<Vec<IpAddr>> {
    let ip_of = |address: SockaddrStorage| {
        let v4 = address.as_sockaddr_in().map(|one| IpAddr::V4(one.ip()));
        v4.or_else(|| address.as_sockaddr_in6().map(|one| IpAddr::V6(one.ip())))
    };
    Ok(getifaddrs()?.filter_map(|interface| interface.address.and_then(ip_of)).collect())
}

pub(super) fn tcp_socket(address: IpAddr) -> io::Result<OwnedFd> {
    let family = match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    Ok(socket(family, SockType::Stream, flags, None)?)
}
