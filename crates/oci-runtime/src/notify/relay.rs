//! The receiving side of a notify socket, which is a helper process.
//!
//! A container may send descriptors with its datagrams, or leave them in the queue of a socket that is closed. Every
//! process that receives, drops or closes them can be made to wait as long as the container likes: by a TCP socket with
//! SO_LINGER, or by a file whose FUSE server does not answer. So the shim never has such a socket open. The helper
//! passes on the text and the sender, and closes the descriptors when the shim has taken the message: the barrier of
//! sd_notify is a descriptor whose close means that all earlier messages were taken, and `systemd-notify` waits for
//! that. Owns the protocol between helper and shim.

use std::{
    io,
    mem::{size_of, zeroed},
    os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd},
    time::Duration,
};

use nix::{
    sys::socket::{AddressFamily, MsgFlags, SockFlag, SockType, socketpair},
    unistd::Pid,
};

use super::message::MESSAGE_LONGEST;
use crate::{
    helper_process::{self, HelperProcess},
    process::Process,
    reaper::Reaper,
};

/// `SCM_PIDFD` of linux/socket.h.
const SCM_PIDFD: libc::c_int = 4;
/// After so many datagrams in a row the helper pauses; a program that floods the socket then waits in its own send,
/// because the queue is short. Every datagram counts: even a dropped one costs processor time outside of the
/// container's limits.
const BATCH: u32 = 16;
const PAUSE: Duration = Duration::from_millis(10);
/// Room for as many descriptors as a datagram can have (`SCM_MAX_FD`), and for credentials, a pidfd and a security
/// module's label: no control message is cut off.
const CONTROL_LONGEST: usize = 2048;
/// Descriptors that one datagram can have (`SCM_MAX_FD`).
const MOST_RIGHTS: usize = 253;
const PID: usize = size_of::<libc::pid_t>();
/// What precedes the text: the sender's pid, and whether descriptors came along.
const HEAD: usize = PID + 1;

/// Whether descriptors came with a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum PassedDescriptors {
    None,
    /// The helper waits for [`acknowledge`] before it closes them.
    Some,
}

/// One message of the helper to the shim.
#[derive(Debug)]
pub(super) struct Report<'text> {
    pub(super) sender: Process,
    pub(super) text: &'text [u8],
    pub(super) rights: PassedDescriptors,
}

/// A helper that receives the datagrams of a socket.
#[derive(Debug)]
pub(super) struct Relay {
    /// Where the helper reports, one packet for each datagram.
    pub(super) reports: OwnedFd,
    pub(super) helper: HelperProcess,
}

impl Relay {
    /// Starts the helper, which from then on is the only one to have the socket. No sender may have been able to send
    /// before.
    pub(super) fn start(reaper: &Reaper, socket: OwnedFd) -> io::Result<Self> {
        let (reports, report) =
            socketpair(AddressFamily::Unix, SockType::SeqPacket, None, SockFlag::SOCK_CLOEXEC)?;
        let (from, to) = (socket.as_raw_fd(), report.as_raw_fd());
        // SAFETY: the loop makes system calls on its own stack.
        let (helper, _exit) = unsafe {
            helper_process::run(reaper, c"podshim-notify", &[socket.as_fd(), report.as_fd()], || {
                relay(from, to)
            })
        }?;
        Ok(Self { reports, helper })
    }
}

/// Control messages, with the alignment they need.
type Control = [u64; CONTROL_LONGEST / size_of::<u64>()];

/// What recvmsg has filled.
struct Received {
    length: usize,
    flags: libc::c_int,
    pid: Option<libc::pid_t>,
    /// Absent if the kernel sends none (before Linux 6.5); -1 if the sender had been reaped.
    pidfd: Option<RawFd>,
    rights: [RawFd; MOST_RIGHTS],
    rights_count: usize,
}

impl Received {
    fn rights(&self) -> PassedDescriptors {
        if self.rights_count == 0 { PassedDescriptors::None } else { PassedDescriptors::Some }
    }

    /// This may hang without end.
    fn close_rights(&self) {
        self.rights[..self.rights_count].iter().copied().for_each(close);
    }
}

/// Passes on datagrams until the shim is gone.
fn relay(socket: RawFd, report: RawFd) -> u8 {
    let mut taken = 0;
    let mut buffer = [0_u8; HEAD + MESSAGE_LONGEST];
    loop {
        let received = match receive(socket, &mut buffer[HEAD..]) {
            Ok(received) => received,
            Err(libc::EINTR) => continue,
            Err(_) => return helper_process::NOT_BEGUN,
        };
        if let Some((pid, pidfd)) = sender(&received) {
            buffer[..PID].copy_from_slice(&pid.to_ne_bytes());
            buffer[PID] = received.rights() as u8;
            let sent = send(report, &mut buffer[..HEAD + received.length], pidfd);
            close(pidfd);
            if sent.is_err()
                || (received.rights() == PassedDescriptors::Some && wait_for_acknowledgement(report).is_err())
            {
                return 0;
            }
        }
        received.close_rights();
        taken += 1;
        if taken >= BATCH {
            taken = 0;
            pause();
        }
    }
}

/// The sender of a datagram that is to be passed on. `None`, so the datagram is dropped, if it is too long, if its
/// control messages did not fit, if its sender is gone, or if its sender's pid namespace is not below the shim's (pid
/// 0).
fn sender(received: &Received) -> Option<(libc::pid_t, RawFd)> {
    let pid = received.pid.filter(|pid| *pid > 0);
    let is_whole = received.flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) == 0;
    match (pid.filter(|_| is_whole), received.pidfd) {
        (Some(pid), Some(pidfd)) => (pidfd >= 0).then_some((pid, pidfd)),
        // At once: another process may soon have this number.
        (Some(pid), None) => {
            // SAFETY: takes a pid and flags.
            let pidfd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
            RawFd::try_from(pidfd).ok().filter(|pidfd| *pidfd >= 0).map(|pidfd| (pid, pidfd))
        }
        (None, pidfd) => {
            if let Some(pidfd) = pidfd {
                close(pidfd);
            }
            None
        }
    }
}

/// The next datagram, with the descriptors that came along.
fn receive(socket: RawFd, text: &mut [u8]) -> Result<Received, libc::c_int> {
    let mut control: Control = [0; _];
    let mut buffer = libc::iovec { iov_base: text.as_mut_ptr().cast(), iov_len: text.len() };
    let mut header = header(&mut buffer, &mut control);
    // SAFETY: the header names buffers of this function that outlive the call, with their sizes.
    let length = unsafe { libc::recvmsg(socket, &raw mut header, libc::MSG_CMSG_CLOEXEC) };
    let Ok(length) = usize::try_from(length) else { return Err(nix::errno::Errno::last_raw()) };
    let (flags, rights) = (header.msg_flags, [-1; MOST_RIGHTS]);
    let mut received = Received { length, flags, pid: None, pidfd: None, rights, rights_count: 0 };
    each_control(&header, |kind, data, bytes| {
        // SAFETY: the kernel's message of this kind, with the length that it states.
        unsafe {
            if kind == libc::SCM_CREDENTIALS {
                received.pid = Some(data.cast::<libc::ucred>().read_unaligned().pid);
            } else if kind == SCM_PIDFD {
                received.pidfd = Some(data.cast::<RawFd>().read_unaligned());
            } else if kind == libc::SCM_RIGHTS {
                let room = &mut received.rights[received.rights_count..];
                // There is at most one such message, with at most as many descriptors as fit. Any further ones would be
                // closed when this process ends.
                for (index, place) in room.iter_mut().enumerate().take(bytes / size_of::<RawFd>()) {
                    *place = data.cast::<RawFd>().add(index).read_unaligned();
                    received.rights_count += 1;
                }
            }
        }
    });
    Ok(received)
}

fn header(buffer: &mut libc::iovec, control: &mut Control) -> libc::msghdr {
    // SAFETY: msghdr is plain data for which all zeroes is a valid value.
    let mut header: libc::msghdr = unsafe { zeroed() };
    header.msg_iov = buffer;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(control) as _;
    header
}

/// Calls `visit` with the kind, the data and the length of each control message of the socket level.
fn each_control(header: &libc::msghdr, mut visit: impl FnMut(libc::c_int, *const u8, usize)) {
    // SAFETY: recvmsg has filled the header; the macros stay inside its control buffer.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !next.is_null() {
        // SAFETY: not null, so it is a whole control message.
        unsafe {
            if (*next).cmsg_level == libc::SOL_SOCKET {
                let bytes = (*next).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                visit((*next).cmsg_type, libc::CMSG_DATA(next), bytes);
            }
            next = libc::CMSG_NXTHDR(header, next);
        }
    }
}

/// Waits for the shim if it is slower than the senders.
fn send(report: RawFd, bytes: &mut [u8], pidfd: RawFd) -> Result<(), ()> {
    let mut control: Control = [0; _];
    let mut buffer = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut header = header(&mut buffer, &mut control);
    // SAFETY: the buffer has room for one descriptor.
    unsafe {
        header.msg_controllen = libc::CMSG_SPACE(size_of::<RawFd>() as _) as _;
        let message = libc::CMSG_FIRSTHDR(&raw const header);
        (*message).cmsg_level = libc::SOL_SOCKET;
        (*message).cmsg_type = libc::SCM_RIGHTS;
        (*message).cmsg_len = libc::CMSG_LEN(size_of::<RawFd>() as _) as _;
        libc::CMSG_DATA(message).cast::<RawFd>().write_unaligned(pidfd);
    }
    loop {
        // SAFETY: as above.
        if unsafe { libc::sendmsg(report, &raw const header, libc::MSG_NOSIGNAL) } >= 0 {
            return Ok(());
        }
        if nix::errno::Errno::last_raw() != libc::EINTR {
            return Err(());
        }
    }
}

fn wait_for_acknowledgement(report: RawFd) -> Result<(), ()> {
    let mut byte = 0_u8;
    loop {
        // SAFETY: receives into one byte of this function.
        match unsafe { libc::recv(report, (&raw mut byte).cast(), 1, 0) } {
            1 => return Ok(()),
            -1 if nix::errno::Errno::last_raw() == libc::EINTR => {}
            _ => return Err(()),
        }
    }
}

/// Lets the helper close the descriptors that came with the last report.
pub(super) fn acknowledge(reports: &impl AsRawFd) {
    // The helper waits for this, so there is room; or it has ended.
    let _ =
        nix::sys::socket::send(reports.as_raw_fd(), &[0], MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL);
}

fn close(fd: RawFd) {
    // SAFETY: a descriptor that the kernel has just given this process.
    unsafe { libc::close(fd) };
}

fn pause() {
    let pause = libc::timespec { tv_sec: 0, tv_nsec: PAUSE.subsec_nanos().into() };
    // SAFETY: the kernel reads one timespec.
    unsafe { libc::nanosleep(&raw const pause, std::ptr::null_mut()) };
}

/// The next report; `None` for a packet that is not a valid report.
///
/// # Errors
/// `WouldBlock` if there is none, `BrokenPipe` if the helper has ended.
pub(super) fn next_report(reports: RawFd, room: &mut ReceiveBuffer) -> io::Result<Option<Report<'_>>> {
    let mut control: Control = [0; _];
    let mut buffer = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
    let mut header = header(&mut buffer, &mut control);
    let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
    // SAFETY: the header names buffers of this function that outlive the call, with their sizes.
    let length = unsafe { libc::recvmsg(reports, &raw mut header, flags) };
    let Ok(length) = usize::try_from(length) else { return Err(io::Error::last_os_error()) };
    let mut pidfd = None;
    each_control(&header, |kind, data, bytes| {
        if kind == libc::SCM_RIGHTS && bytes == size_of::<RawFd>() {
            // SAFETY: the kernel has just given this descriptor to this call alone. It is a pidfd, so closing it never
            // waits.
            pidfd = Some(unsafe { OwnedFd::from_raw_fd(data.cast::<RawFd>().read_unaligned()) });
        }
    });
    if length == 0 {
        return Err(io::ErrorKind::BrokenPipe.into());
    }
    let Some((head, text)) = room[..length].split_first_chunk::<HEAD>() else { return Ok(None) };
    let [pid @ .., rights] = *head;
    let rights = if rights == PassedDescriptors::Some as u8 {
        PassedDescriptors::Some
    } else {
        PassedDescriptors::None
    };
    let pid = Pid::from_raw(libc::pid_t::from_ne_bytes(pid));
    Ok(pidfd.map(|pidfd| Report { sender: Process::of_pidfd(pid, pidfd), text, rights }))
}

/// A buffer for [`next_report`].
pub(super) type ReceiveBuffer = Box<[u8; HEAD + MESSAGE_LONGEST]>;

/// An empty buffer.
pub(super) fn room() -> ReceiveBuffer {
    Box::new([0; _])
}
