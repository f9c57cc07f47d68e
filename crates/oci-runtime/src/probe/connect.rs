//! Connecting inside a container's network namespace, for `tcp:` and `http:` probes (rule U2).
//!
//! Owns which addresses are tried: only addresses of that namespace. Pod authors write the annotations, and the shim
//! must not become their port scanner of the node (DESIGN §6).

use std::fmt;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::poll::PollFlags;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrStorage, getsockopt, socket, sockopt};
use processes::Process;

use super::deadline::{Connection, Failed, now, wait_for};

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

/// Connects to the first address of `endpoint` that accepts, in the network namespace of `process`, in which the calling thread
/// stays. An address that does not answer leaves the others their share of the time until `deadline`.
pub(super) fn connect(
    process: &Process,
    endpoint: Endpoint,
    home: HomeNetwork,
    deadline: Duration,
) -> Result<(Connection, SocketAddr), Failed> {
    process
        .enter_network()
        .map_err(|error| Failed::Because(format!("cannot be probed: no network namespace: {error}")))?;
    let own = HomeNetwork::of_this_thread();
    let addresses = own.and_then(|own| addresses(endpoint.host, home.owner_of(own))).map_err(|error| {
        Failed::Because(match error.raw_os_error() {
            Some(libc::EADDRNOTAVAIL) => "is not an address of the container".to_owned(),
            _ => format!("cannot be probed: {error}"),
        })
    })?;
    let (mut left, is_only) = (addresses.len(), addresses.len() == 1);
    let mut answer = Refusal::Refused;
    for ip in addresses {
        let address = SocketAddr::new(ip, endpoint.port);
        let share = deadline.saturating_sub(now()) / u32::try_from(left).unwrap_or(1);
        left -= 1;
        let until = if left == 0 { deadline } else { now() + share };
        let refusal = match connect_to(address, until) {
            Ok(stream) => return Ok((Connection::new(stream, deadline), address)),
            Err(Failed::OutOfTime) if left == 0 => return Err(Failed::OutOfTime),
            Err(Failed::OutOfTime) => "no answer".to_owned(),
            Err(Failed::Because(why)) if why == io::Error::from(Errno::ECONNREFUSED).to_string() => continue,
            Err(Failed::Because(why)) => why,
        };
        if answer == Refusal::Refused {
            answer = Refusal::Other(if is_only { refusal } else { format!("{refusal} at {ip}") });
        }
    }
    Err(Failed::Because(match answer {
        Refusal::Refused => "refused".to_owned(),
        Refusal::Other(why) => why,
    }))
}

fn connect_to(address: SocketAddr, until: Duration) -> Result<TcpStream, Failed> {
    let socket = tcp_socket(address.ip())?;
    match nix::sys::socket::connect(socket.as_raw_fd(), &SockaddrStorage::from(address)) {
        Ok(()) => {}
        Err(Errno::EINPROGRESS) => {
            wait_for(socket.as_fd(), PollFlags::POLLOUT, until)?;
            match getsockopt(&socket, sockopt::SocketError)? {
                0 => {}
                error => return Err(Errno::from_raw(error).into()),
            }
        }
        Err(error) => return Err(error.into()),
    }
    Ok(socket.into())
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

/// The network namespace in which the shim is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HomeNetwork(u64, u64);

impl HomeNetwork {
    /// Call it before the calling thread enters another namespace.
    pub(super) fn of_this_thread() -> io::Result<Self> {
        Self::at("/proc/thread-self/ns/net")
    }

    pub(super) fn at(path: &str) -> io::Result<Self> {
        let namespace = fs::metadata(path)?;
        Ok(Self(namespace.dev(), namespace.ino()))
    }

    pub(super) fn owner_of(self, other: Self) -> NamespaceOwner {
        if self == other { NamespaceOwner::Node } else { NamespaceOwner::Pod }
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
