//! The shim's side of a notify socket: the socket in the bundle, its keeper, and the task that takes reports.
//!
//! The shim reads no message and looks up no sender.

use std::cell::Cell;
use std::fs::File;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use cgroups::{Cgroup, Membership};
use nix::errno::Errno;
use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, recv, send, socketpair};
use processes::Process;
use processes::helper_process::{self, HelperProcess};
use processes::reaper::Reaper;
use threads::async_file;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tracing::warn;

use super::keeper;
use super::message::Statement;
use super::protocol::{Announcement, Order, REPORT_LONGEST};
use crate::bundle::Bundle;

#[cfg(test)]
mod tests;

/// A receiver that hangs is moved out before.
const LEAVES_WITHIN: Duration = Duration::from_secs(1);

/// The socket of one container, from its first create to its delete. Dropping this closes it; its file is removed with
/// the bundle.
#[derive(Debug)]
pub struct NotifySocket {
    task: JoinHandle<()>,
    shim: Rc<AsyncFd<File>>,
    run: Rc<Cell<u32>>,
    idle: Rc<Idle>,
    // It has the socket. Dropping this kills it and its receiver, which closes the socket and what is still queued in it,
    // so that the shim never has to.
    #[cfg_attr(not(test), expect(dead_code, reason = "its being there is all it is for"))]
    keeper: HelperProcess,
}

impl NotifySocket {
    /// Makes the socket in the bundle. From [`Self::receive_from`] on, `receive` gets on the current `LocalSet` what the container
    /// says.
    ///
    /// Every user of the container may connect. No other process can: only root may enter the bundle.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn listen(
        reaper: &Reaper,
        bundle: &Bundle,
        receive: impl Fn(Statement) + 'static,
    ) -> io::Result<Self> {
        let socket = bind(&bundle.notify_socket_path())?;
        let (shim, keepers) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
        let (from, to) = (socket.as_raw_fd(), keepers.as_raw_fd());
        let files = [socket.as_fd(), keepers.as_fd()];
        // SAFETY: the job does not panic and takes no lock.
        let (keeper, _exit) =
            unsafe { helper_process::run(reaper, c"podshim-notify", &files, || keeper::keep(from, to)) }?;
        let shim = Rc::new(async_file::register(File::from(shim), Interest::READABLE)?);
        let run = Rc::new(Cell::new(0));
        let idle = Rc::new(Idle::default());
        let task = tokio::task::spawn_local(take_reports(shim.clone(), run.clone(), idle.clone(), receive));
        Ok(Self { task, shim, run, idle, keeper })
    }

    /// A new run of the container begins, with this process: from now on its messages count, which come from its groups.
    pub fn receive_from(&self, cgroup: Option<&Cgroup>, init: &Process) {
        self.run.set(self.run.get().wrapping_add(1));
        let container = cgroup.and_then(|cgroup| Membership::of(cgroup, init.pid()));
        // Else another process may have its pid.
        let container = container.filter(|_| init.is_running());
        self.order(&Order::Receive { run: self.run.get(), container });
    }

    /// The container's process has ended: nothing of podshim's stays in its groups. [`Self::left`] waits for that.
    pub fn ended(&self) {
        self.idle.ordered.set(self.idle.ordered.get().wrapping_add(1));
        self.order(&Order::Idle { number: self.idle.ordered.get() });
    }

    /// Ends what receives, and waits until it has left the container's groups.
    pub fn left(&self) -> impl Future<Output = ()> + use<> {
        self.ended();
        let (idle, number) = (self.idle.clone(), self.idle.ordered.get());
        async move {
            let left = async {
                // A later order counts too.
                while idle.left.get().wrapping_sub(number) > u32::MAX / 2 {
                    idle.changed.notified().await;
                }
            };
            if tokio::time::timeout(LEAVES_WITHIN, left).await.is_err() {
                warn!("the helper of a notify socket does not say that it has left its container's groups");
            }
        }
    }

    fn order(&self, order: &Order) {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        if let Err(error) = send(self.shim.get_ref().as_raw_fd(), &order.encode(), flags) {
            warn!(%error, "the helper of a notify socket does not answer: READY=1 of its container is not received");
        }
    }
}

/// Orders to leave the container's groups, by their number.
#[derive(Debug, Default)]
struct Idle {
    ordered: Cell<u32>,
    /// Which of them the keeper has obeyed.
    left: Cell<u32>,
    changed: Notify,
}

/// A report comes once a second, and at the end of a run.
async fn take_reports(
    shim: Rc<AsyncFd<File>>,
    run: Rc<Cell<u32>>,
    idle: Rc<Idle>,
    receive: impl Fn(Statement),
) {
    let mut packet = [0; REPORT_LONGEST];
    while let Ok(mut readable) = shim.readable().await {
        match recv(shim.get_ref().as_raw_fd(), &mut packet, MsgFlags::MSG_DONTWAIT) {
            Err(Errno::EAGAIN) => readable.clear_ready(),
            Err(Errno::EINTR) => {}
            Ok(length) if length > 0 => match Announcement::decode(&packet[..length]) {
                Some(Announcement::Report(report)) if report.run == run.get() => receive(report.statement),
                Some(Announcement::Left { number }) => {
                    idle.left.set(number);
                    idle.changed.notify_waiters();
                }
                _ => {}
            },
            Ok(_) | Err(_) => {
                warn!(
                    "the helper of a notify socket has ended: READY=1 of its container is no longer received"
                );
                return;
            }
        }
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
    // From Linux 6.5. Before, the receiver pins the pid of the credentials as soon as it has read it.
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
