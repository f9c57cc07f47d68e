//! The socket in the bundle, and the task that takes the helper's reports.

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
    async_file, bundle::Bundle, busy, cgroup::Cgroup, helper_process::HelperProcess, process::Process,
    reaper::Reaper,
};

use super::message::Message;
use super::relay::{self, PassedDescriptors, Relay};

#[cfg(test)]
mod tests;

/// The sender of a datagram: the process that the kernel vouches for, pinned so that its pid stays valid for questions.
#[derive(Debug)]
pub struct Sender(Process);

impl Sender {
    /// Whether the sender is a process of the container that has these groups. A sender that is gone counts as outside:
    /// a helper that ends right after its message must wait until the message was taken (`systemd-notify` does).
    pub fn is_in(&self, cgroup: &Cgroup) -> bool {
        let inside = cgroup.holds(self.0.pid());
        // Checked last: while the process lives, no other process can have its pid.
        inside && self.0.is_running()
    }
}

/// The socket of one container, from its first create to its delete. Dropping this closes it; its file is removed with
/// the bundle.
#[derive(Debug)]
pub struct NotifySocket {
    task: JoinHandle<()>,
    // The helper has the socket. Dropping this kills the helper, which closes the socket and what is still queued in
    // it, so that the shim never has to.
    #[cfg_attr(not(test), expect(dead_code, reason = "its being there is all it is for"))]
    helper: HelperProcess,
}

impl NotifySocket {
    /// Makes the socket in the bundle and listens on the current `LocalSet`: `receive` gets each message with its sender.
    ///
    /// Every user of the container may connect. No other process can: only root may enter the bundle.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn listen(
        reaper: &Reaper,
        bundle: &Bundle,
        receive: impl Fn(Sender, Message) + 'static,
    ) -> io::Result<Self> {
        Self::listen_on(reaper, bind(&bundle.notify_socket_path())?, receive)
    }

    fn listen_on(
        reaper: &Reaper,
        socket: UnixDatagram,
        receive: impl Fn(Sender, Message) + 'static,
    ) -> io::Result<Self> {
        let Relay { reports, helper } = Relay::start(reaper, socket.into())?;
        let reports = async_file::register(File::from(reports), Interest::READABLE)?;
        let task = tokio::task::spawn_local(async move {
            let mut room = relay::room();
            // The helper limits its rate, and with it the rate of this loop.
            while let Ok(mut readable) = reports.readable().await {
                match relay::next_report(reports.get_ref().as_raw_fd(), &mut room) {
                    Ok(Some(report)) => {
                        busy::during("a container's message", || {
                            receive(Sender(report.sender), Message::parse(report.text));
                        });
                        if report.rights == PassedDescriptors::Some {
                            relay::acknowledge(reports.get_ref());
                        }
                    }
                    Ok(None) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => readable.clear_ready(),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => {
                        warn!(%error, "the helper of a notify socket has ended: READY=1 of its container is no longer received");
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
    // A file may be left from a create that failed and is now retried.
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // A bundle's path is longer than the 107 bytes of an address; a path by descriptor is not.
    let directory =
        File::options().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(directory)?;
    let address = Path::new("/proc/self/fd").join(directory.as_raw_fd().to_string()).join(name);
    let socket = UnixDatagram::bind(address)?;
    std::fs::set_permissions(path, PermissionsExt::from_mode(0o666))?;
    set(&socket, libc::SO_PASSCRED)?;
    // From Linux 6.5. Before, the helper pins the pid of the credentials as soon as it has read it.
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
