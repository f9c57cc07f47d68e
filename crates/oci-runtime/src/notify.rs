//! The socket on which a container says `READY=1`, in the protocol of systemd's services (sd_notify).
//!
//! Owns the socket in the bundle, who may speak on it, and how much is listened to. Never answers, and never keeps
//! what it is sent: descriptors that come along are closed.

use std::{
    fs::File,
    io,
    mem::{size_of, zeroed},
    os::{
        fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
        unix::{
            fs::{OpenOptionsExt, PermissionsExt},
            net::UnixDatagram,
        },
    },
    path::Path,
    time::Duration,
};

use nix::unistd::Pid;
use tokio::{io::Interest, task::JoinHandle};

use crate::{async_file, bundle::Bundle, cgroup::Cgroup, process::Process};

#[cfg(test)]
mod tests;

/// `SCM_PIDFD` of linux/socket.h.
const SCM_PIDFD: libc::c_int = 4;
/// Longest datagram that is read, as in systemd; longer ones are dropped.
const MESSAGE_LONGEST: usize = 4096;
/// Longest status that is kept, in bytes.
pub(crate) const STATUS_LONGEST: usize = 128;
/// So many datagrams in a row, then a pause: who floods the socket waits in its own send, for the queue is short.
const BATCH: usize = 16;
const PAUSE: Duration = Duration::from_millis(10);
/// Room for the credentials, a pidfd, and some descriptors that are to be closed.
const CONTROL_LONGEST: usize = 256;

/// What a datagram says that means something here.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Message {
    /// Whether it has `READY=1`.
    pub readiness: Readiness,
    /// `STATUS=`, cut to a length for one line.
    pub status: Option<String>,
}

/// Whether a program says that it is ready.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Readiness {
    /// It does not say so.
    #[default]
    Unsaid,
    /// `READY=1`.
    Ready,
}

impl Message {
    /// Reads `KEY=value` lines; what is none of ours is passed over.
    pub fn parse(datagram: &[u8]) -> Self {
        let mut message = Self::default();
        for line in datagram.split(|byte| *byte == b'\n') {
            if line == b"READY=1" {
                message.readiness = Readiness::Ready;
            } else if let Some(status) = line.strip_prefix(b"STATUS=") {
                let status = &status[..status.len().min(STATUS_LONGEST)];
                message.status = Some(String::from_utf8_lossy(status).trim().to_owned());
            }
        }
        message
    }
}

/// Who sent a datagram: the process the kernel vouches for, pinned so that its pid can be asked about.
#[derive(Debug)]
pub struct Sender(Process);

impl Sender {
    /// Whether it is a process of the container whose groups these are. One that is gone already is not known to be:
    /// a helper that ends right after it has spoken must wait until it was heard (`systemd-notify` does).
    pub fn is_in(&self, cgroup: &Cgroup) -> bool {
        let inside = cgroup.holds(self.0.pid());
        // Last: as long as it lives its pid was nobody else's.
        inside && self.0.is_running()
    }
}

/// The socket of one container, from its first create to its delete. Dropped, it is closed; its file goes with the
/// bundle.
#[derive(Debug)]
pub struct NotifySocket {
    task: JoinHandle<()>,
}

impl NotifySocket {
    /// Makes the socket in the bundle and listens on the current `LocalSet`: `hear` gets what comes and from whom.
    ///
    /// Every user of the container may connect; that nobody else can is the bundle's business, which root alone enters.
    ///
    /// # Errors
    /// The kernel's.
    pub fn listen(bundle: &Bundle, hear: impl Fn(Sender, Message) + 'static) -> io::Result<Self> {
        let socket = bind(&bundle.notify_socket_path())?;
        let socket = async_file::register(File::from(OwnedFd::from(socket)), Interest::READABLE)?;
        let task = tokio::task::spawn_local(async move {
            let mut taken = 0;
            // An error of the descriptor itself: nothing will be heard any more.
            while let Ok(mut readable) = socket.readable().await {
                match receive(socket.get_ref().as_raw_fd()) {
                    Ok(Some((sender, message))) => hear(sender, message),
                    Ok(None) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        taken = 0;
                        readable.clear_ready();
                    }
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(_) => return,
                }
                taken += 1;
                if taken >= BATCH {
                    taken = 0;
                    tokio::time::sleep(PAUSE).await;
                }
            }
        });
        Ok(Self { task })
    }
}

impl Drop for NotifySocket {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn bind(path: &Path) -> io::Result<UnixDatagram> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidInput);
    let (directory, name) = (path.parent().ok_or_else(invalid)?, path.file_name().ok_or_else(invalid)?);
    // A create that failed and is tried again.
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // A bundle's path is longer than the 107 bytes of an address, one by descriptor is not.
    let directory =
        File::options().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(directory)?;
    let address = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name);
    let socket = UnixDatagram::bind(address)?;
    socket.set_nonblocking(true)?;
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o666))?;
    set(&socket, libc::SO_PASSCRED)?;
    // Linux 6.5; before, the pid of the credentials is pinned as soon as it is read.
    let _ = set(&socket, libc::SO_PASSPIDFD);
    Ok(socket)
}

fn set(socket: &UnixDatagram, option: libc::c_int) -> io::Result<()> {
    let on: libc::c_int = 1;
    let size = size_of::<libc::c_int>() as libc::socklen_t;
    // SAFETY: the option is one int, which outlives the call.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, option, std::ptr::from_ref(&on).cast(), size)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The next datagram; `None` for one that counts for nothing: too long, or of a sender who is gone or unknown.
fn receive(socket: RawFd) -> io::Result<Option<(Sender, Message)>> {
    // Aligned as control messages want it.
    let mut control = [0_u64; CONTROL_LONGEST / size_of::<u64>()];
    let mut data = [0; MESSAGE_LONGEST];
    let mut buffer = libc::iovec { iov_base: data.as_mut_ptr().cast(), iov_len: data.len() };
    // SAFETY: msghdr is plain data for which all zeroes is a valid value.
    let mut header: libc::msghdr = unsafe { zeroed() };
    header.msg_iov = &raw mut buffer;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(&control) as _;
    // SAFETY: the header names buffers of ours that outlive the call, with their sizes.
    let length = unsafe { libc::recvmsg(socket, &raw mut header, libc::MSG_CMSG_CLOEXEC) };
    let Ok(length) = usize::try_from(length) else { return Err(io::Error::last_os_error()) };
    let (mut credentials, mut pidfd) = (None, None);
    // SAFETY: recvmsg has filled the header; the macros stay inside its control buffer.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(&raw const header) };
    while !next.is_null() {
        // SAFETY: not null, so it is a whole control message, whose type says what its data are.
        unsafe {
            let (level, kind, data) = ((*next).cmsg_level, (*next).cmsg_type, libc::CMSG_DATA(next));
            if (level, kind) == (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) {
                credentials = Some(data.cast::<libc::ucred>().read_unaligned());
            } else if level == libc::SOL_SOCKET && matches!(kind, libc::SCM_RIGHTS | SCM_PIDFD) {
                let bytes = (*next).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                for index in 0..bytes / size_of::<RawFd>() {
                    let descriptor = data.cast::<RawFd>().add(index).read_unaligned();
                    // Ours from now on: closed here but for the pidfd. That one may be an error: reaped already.
                    let descriptor = (descriptor >= 0).then(|| OwnedFd::from_raw_fd(descriptor));
                    if kind == SCM_PIDFD {
                        pidfd = Some(descriptor);
                    }
                }
            }
            next = libc::CMSG_NXTHDR(&raw const header, next);
        }
    }
    let pid = credentials.map_or(0, |credentials| credentials.pid);
    // 0: of a pid namespace that is not below ours.
    if pid <= 0 || header.msg_flags & libc::MSG_TRUNC != 0 {
        return Ok(None);
    }
    let pid = Pid::from_raw(pid);
    let process = match pidfd {
        Some(pidfd) => pidfd.map(|pidfd| Process::of_pidfd(pid, pidfd)),
        None => Process::open(pid).ok(),
    };
    Ok(process.map(|process| (Sender(process), Message::parse(&data[..length]))))
}
