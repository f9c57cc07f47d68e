//! A process whose shim is gone: it is no child of this process, so no reaper reports its end.
//!
//! Owns its pidfd, the only handle that can be signalled and waited for without hitting another process.

use std::cell::OnceCell;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::rc::Rc;
use std::time::SystemTime;

use cgroups::Cgroup;
use oci_runtime::Pid;
use processes::SignalNumber;
use tokio::io::unix::AsyncFd;
use tokio::task::spawn_local;

use super::exit::now;

/// A container's init.
#[derive(Debug)]
pub(super) struct Orphan {
    pidfd: OwnedFd,
}

impl Orphan {
    /// Opens the process that has this pid now. The caller must then ask the runtime whether it is the right one: from
    /// here on it cannot change.
    pub(super) fn open(pid: Pid) -> io::Result<Self> {
        // SAFETY: pidfd_open takes only numbers.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid.as_raw(), 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just made this descriptor for this call alone.
        Ok(Self { pidfd: unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) } })
    }

    /// Signals it. It may have ended already; any other failure shows in the runtime's forced delete.
    pub(super) fn signal(&self, signal: SignalNumber) {
        let no_info = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: the descriptor is open for the call; a null siginfo asks for kill(2)'s behaviour.
        unsafe {
            libc::syscall(libc::SYS_pidfd_send_signal, self.pidfd.as_raw_fd(), signal.as_raw(), no_info, 0)
        };
    }

    /// The groups that it is in. `None` if it has ended: the pid may be another process's then.
    pub(super) fn cgroup(&self, pid: Pid) -> Option<Cgroup> {
        let cgroup = Cgroup::of_pid(pid).ok()?;
        // SAFETY: as in `signal`; signal 0 only asks whether the process is there.
        let there =
            unsafe { libc::syscall(libc::SYS_pidfd_send_signal, self.pidfd.as_raw_fd(), 0, 0, 0) } == 0;
        there.then_some(cgroup)
    }

    /// The time at which it ends, once it has.
    pub(super) fn watch(&self) -> Rc<OnceCell<SystemTime>> {
        let ended_at = Rc::new(OnceCell::new());
        if let Ok(pidfd) = self.pidfd.try_clone() {
            let cell = ended_at.clone();
            spawn_local(async move {
                Self { pidfd }.exited().await;
                let _ = cell.set(now());
            });
        }
        ended_at
    }

    /// Resolves when it has ended: then its pidfd is readable.
    pub(super) async fn exited(&self) {
        let Ok(pidfd) = self.pidfd.try_clone() else { return };
        // SAFETY: an OwnedFd stays the same descriptor as long as it lives.
        let Ok(pidfd) = (unsafe { AsyncFd::register(pidfd) }) else { return };
        let _ = pidfd.readable().await;
    }
}
