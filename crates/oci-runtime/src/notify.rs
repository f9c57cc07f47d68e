//! The socket on which a container says `READY=1`, in the protocol of systemd's services (sd_notify).
//!
//! Owns the socket in the bundle, who may speak on it, and how much is listened to. Never answers, and never keeps
//! what it is sent. Descriptors that come along are closed by a helper (`relay`).

use std::{
    fs::File,
    io,
    mem::size_of,
    os::{
        fd::AsRawFd,
        unix::{
            fs::{OpenOptionsExt, PermissionsExt},
            net::UnixDatagram,
        },
    },
    path::Path,
};

use tokio::{io::Interest, task::JoinHandle};
use tracing::warn;

use crate::{
    async_file, attention, bundle::Bundle, cgroup::Cgroup, helper_process::HelperProcess, process::Process,
    reaper::Reaper,
};

use relay::{Relay, Rights};

mod relay;
#[cfg(test)]
mod tests;

/// `SCM_PIDFD` of linux/socket.h.
const SCM_PIDFD: libc::c_int = 4;
/// Longest datagram that is read, as in systemd; longer ones are dropped.
const MESSAGE_LONGEST: usize = 4096;
/// Longest status that is kept, in bytes.
pub(crate) const STATUS_LONGEST: usize = 128;
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
    // It has the socket. Killed when this is dropped, it closes that, and what is still queued there, without us.
    #[cfg_attr(not(test), expect(dead_code, reason = "its being there is all it is for"))]
    helper: HelperProcess,
}

impl NotifySocket {
    /// Makes the socket in the bundle and listens on the current `LocalSet`: `hear` gets what comes and from whom.
    ///
    /// Every user of the container may connect; that nobody else can is the bundle's business, which root alone enters.
    ///
    /// # Errors
    /// The kernel's.
    pub fn listen(
        reaper: &Reaper,
        bundle: &Bundle,
        hear: impl Fn(Sender, Message) + 'static,
    ) -> io::Result<Self> {
        Self::listen_on(reaper, bind(&bundle.notify_socket_path())?, hear)
    }

    fn listen_on(
        reaper: &Reaper,
        socket: UnixDatagram,
        hear: impl Fn(Sender, Message) + 'static,
    ) -> io::Result<Self> {
        let Relay { reports, helper } = Relay::start(reaper, socket.into())?;
        let reports = async_file::register(File::from(reports), Interest::READABLE)?;
        let task = tokio::task::spawn_local(async move {
            let mut room = relay::room();
            // The helper keeps to a pace, so that this does.
            while let Ok(mut readable) = reports.readable().await {
                match relay::next_report(reports.get_ref().as_raw_fd(), &mut room) {
                    Ok(Some(report)) => {
                        attention::during("a container's message", || {
                            hear(Sender(report.sender), Message::parse(report.text));
                        });
                        if report.rights == Rights::Some {
                            relay::acknowledge(reports.get_ref());
                        }
                    }
                    Ok(None) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => readable.clear_ready(),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => {
                        warn!(%error, "nothing is heard on a notify socket any more: its helper has ended");
                        return;
                    }
                }
                tokio::task::coop::consume_budget().await;
            }
        });
        Ok(Self { task, helper })
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
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o666))?;
    set(&socket, libc::SO_PASSCRED)?;
    // Linux 6.5; before, the pid of the credentials is pinned as soon as it is read.
    let _ = set(&socket, libc::SO_PASSPIDFD);
    // Not SO_PASSRIGHTS=0 (Linux 6.16): the barrier of sd_notify is a descriptor, and without it systemd-notify fails.
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
