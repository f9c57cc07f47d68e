//! The process that reads a container's notify socket, in the container's own cgroup: what a message costs is charged to the
//! container.
//!
//! A container may send descriptors with its datagrams. Every process that receives, drops or closes them can be made to wait
//! as long as the container likes: by a TCP socket with SO_LINGER, or by a file whose FUSE server does not answer. So the shim
//! never has such a socket open. A descriptor is closed when its message has been judged: the barrier of sd_notify is a
//! descriptor whose close means that all earlier messages were taken, and `systemd-notify` waits for that. Owns the check of
//! a sender, and how often the shim hears of a container.

use std::mem::{size_of, zeroed};
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use cgroups::Membership;
use nix::errno::Errno;
use nix::poll::PollTimeout;
use nix::sys::socket::{MsgFlags, send};
use nix::unistd::Pid;
use processes::{Process, helper_process};

use super::message::{MESSAGE_LONGEST, Message, Statement};
use super::protocol::Report;

/// The exit code of a receiver whose container has said that it is ready.
pub(super) const READY: u8 = 1;
/// `SCM_PIDFD` of linux/socket.h.
const SCM_PIDFD: libc::c_int = 4;
/// After so many datagrams in a row it pauses; a program that floods the socket then waits in its own send, because the
/// queue is short.
const BATCH: u32 = 16;
const PAUSE: Duration = Duration::from_millis(10);
/// It ends when no message has come for this time: then nothing of podshim's is in the container.
const LINGER: Duration = Duration::from_secs(10);
/// The shim hears no more often than that, but of `READY=1` at once: the newest counts.
const REPORT_PERIOD: Duration = Duration::from_secs(1);
/// Room for as many descriptors as a datagram can have (`SCM_MAX_FD`), and for credentials, a pidfd and a security
/// module's label: no control message is cut off.
const CONTROL_LONGEST: usize = 2048;
/// Descriptors that one datagram can have (`SCM_MAX_FD`).
const MOST_RIGHTS: usize = 253;

/// One receiver.
pub(super) struct Receiver<'keeper> {
    pub(super) socket: RawFd,
    pub(super) shim: RawFd,
    pub(super) run: u32,
    pub(super) container: Option<&'keeper Membership>,
    /// The container has said so, and is not heard any more.
    pub(super) is_ready: bool,
}

/// What has been heard and not reported.
struct Outbox {
    waiting: Option<Statement>,
    next: Instant,
}

impl Receiver<'_> {
    /// Receives until no message has come for a while, or the shim is gone. Returns the exit code.
    pub(super) fn receive(mut self) -> u8 {
        if let Some(container) = self.container
            && let Err(error) = container.enter()
        {
            let _ = self.report(Statement::Deaf(format!("no receiver can enter its cgroup: {error}")));
            return helper_process::NOT_BEGUN;
        }
        let (mut taken, mut quiet_since) = (0, now());
        let mut outbox = Outbox { waiting: None, next: quiet_since };
        let mut buffer = [0_u8; MESSAGE_LONGEST];
        loop {
            let due = outbox.waiting.is_some().then_some(outbox.next);
            let until = due.unwrap_or(quiet_since + LINGER);
            if wait_for(self.socket, until.saturating_duration_since(now())) {
                let Ok(received) = receive(self.socket, &mut buffer) else { return self.code() };
                let statement = self.judge(&received, &buffer[..received.length]);
                quiet_since = now();
                if self.send_or_keep(&mut outbox, statement).is_err() {
                    return self.code();
                }
                received.close_rights();
                taken += 1;
                if taken >= BATCH {
                    taken = 0;
                    std::thread::sleep(PAUSE);
                }
            } else if due.is_none() {
                return self.code();
            }
            if self.send_or_keep(&mut outbox, None).is_err() {
                return self.code();
            }
        }
    }

    fn code(&self) -> u8 {
        if self.is_ready { READY } else { 0 }
    }

    /// What a datagram means. `None`: nothing, or the datagram is dropped.
    fn judge(&self, received: &Received, text: &[u8]) -> Option<Statement> {
        let sender = received.sender()?;
        if self.is_ready {
            return None;
        }
        let statement = Message::parse(text).statement()?;
        // A sender that is gone counts as outside: a helper that ends right after its message must wait until the message
        // was taken (`systemd-notify` does). Asked last: while the process lives, no other process can have its pid.
        let is_inside =
            self.container.is_some_and(|container| container.has(sender.pid())) && sender.is_running();
        Some(if is_inside { statement } else { Statement::Stranger })
    }

    fn send_or_keep(&mut self, outbox: &mut Outbox, statement: Option<Statement>) -> nix::Result<()> {
        if statement == Some(Statement::Ready) {
            outbox.waiting = None;
            self.is_ready = true;
            return self.report(Statement::Ready);
        }
        if statement.is_some() {
            outbox.waiting = statement;
        }
        if now() < outbox.next {
            return Ok(());
        }
        let Some(statement) = outbox.waiting.take() else { return Ok(()) };
        outbox.next = now() + REPORT_PERIOD;
        self.report(statement)
    }

    /// Waits for the shim if it is slower.
    fn report(&self, statement: Statement) -> nix::Result<()> {
        let packet = Report { run: self.run, statement }.encode();
        loop {
            match send(self.shim, &packet, MsgFlags::MSG_NOSIGNAL) {
                Err(Errno::EINTR) => {}
                sent => return sent.map(drop),
            }
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a process of its own, which no test's clock reaches")]
fn now() -> Instant {
    Instant::now()
}

/// Control messages, with the alignment they need.
type Control = [u64; CONTROL_LONGEST / size_of::<u64>()];

/// What recvmsg has filled.
struct Received {
    length: usize,
    flags: libc::c_int,
    pid: Option<libc::pid_t>,
    /// Absent if the kernel sends none (before Linux 6.5), or if the sender had been reaped.
    sender: Option<Process>,
    rights: [RawFd; MOST_RIGHTS],
    rights_count: usize,
}

impl Received {
    /// The sender, pinned. `None`, so the datagram is dropped, if it is too long, if its control messages did not fit, if
    /// its sender is gone, or if its sender's pid namespace is not below the shim's (pid 0).
    fn sender(&self) -> Option<&Process> {
        let is_whole = self.flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) == 0;
        self.sender.as_ref().filter(|_| is_whole)
    }

    /// This may hang without end.
    fn close_rights(&self) {
        for right in &self.rights[..self.rights_count] {
            // SAFETY: a descriptor that the kernel has just given this process.
            unsafe { libc::close(*right) };
        }
    }
}

/// Whether something can be received before the time is over.
fn wait_for(socket: RawFd, time: Duration) -> bool {
    let mut ready = libc::pollfd { fd: socket, events: libc::POLLIN, revents: 0 };
    // Rounded up: a wait of no time would spin until it is due.
    let limit = PollTimeout::try_from(time + Duration::from_millis(1)).unwrap_or(PollTimeout::ZERO);
    // SAFETY: one pollfd of this function.
    unsafe { libc::poll(&raw mut ready, 1, limit.into()) > 0 }
}

/// The next datagram, with the descriptors that came along.
fn receive(socket: RawFd, text: &mut [u8]) -> nix::Result<Received> {
    let mut control: Control = [0; _];
    let mut buffer = libc::iovec { iov_base: text.as_mut_ptr().cast(), iov_len: text.len() };
    // SAFETY: msghdr is plain data for which all zeroes is a valid value.
    let mut header: libc::msghdr = unsafe { zeroed() };
    header.msg_iov = &raw mut buffer;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(&control) as _;
    // SAFETY: the header names buffers of this function that outlive the call, with their sizes.
    let length = Errno::result(unsafe { libc::recvmsg(socket, &raw mut header, libc::MSG_CMSG_CLOEXEC) })?;
    let (rights, mut pidfd) = ([-1; MOST_RIGHTS], None);
    let mut received = Received {
        length: length.unsigned_abs(),
        flags: header.msg_flags,
        pid: None,
        sender: None,
        rights,
        rights_count: 0,
    };
    each_control(&header, |kind, data, bytes| {
        // SAFETY: the kernel's message of this kind, with the length that it states.
        unsafe {
            if kind == libc::SCM_CREDENTIALS {
                received.pid = Some(data.cast::<libc::ucred>().read_unaligned().pid);
            } else if kind == SCM_PIDFD {
                pidfd = Some(data.cast::<RawFd>().read_unaligned());
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
    // SAFETY: the kernel has just given this descriptor to this process alone; it is a pidfd, whose close never waits.
    let pidfd = pidfd.map(|pidfd| (pidfd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(pidfd) }));
    let pid = received.pid.filter(|pid| *pid > 0).map(Pid::from_raw);
    received.sender = pid.and_then(|pid| match pidfd {
        Some(pidfd) => pidfd.map(|pidfd| Process::of_pidfd(pid, pidfd)),
        // At once: another process may soon have this number.
        None => Process::open(pid).ok(),
    });
    Ok(received)
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
