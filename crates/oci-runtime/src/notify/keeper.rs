//! The helper process that has a container's notify socket, from its first create to its delete.
//!
//! It reads nothing. When a message waits it starts a `receiver`, which enters the container's cgroup and dies with what is
//! killed there; the socket stays. Owns when a receiver runs: one at a time, for the run of the container that the shim has
//! named last.

use std::os::fd::{AsRawFd, RawFd};

use cgroups::Membership;
use nix::errno::Errno;
use nix::sys::socket::{MsgFlags, recv, send};
use nix::unistd::{ForkResult, Pid, fork, getpid};
use processes::{Process, SignalNumber, helper_process};

use super::protocol::{Announcement, ORDER_LONGEST, Order};
use super::receiver::{self, Receiver};

/// After a receiver has ended, messages wait for so many milliseconds before there is another one: a fork is charged to the node.
const PAUSE: libc::c_int = 250;

/// A killed receiver that has not ended after so many milliseconds hangs.
const STUCK: libc::c_int = 200;

/// What the keeper knows.
struct Keeper {
    socket: RawFd,
    shim: RawFd,
    order: Order,
    /// The shim waits for the receiver to leave, since this order.
    awaited: Option<u32>,
    /// Whether the run that it hears has said that it is ready.
    is_ready: bool,
    receiver: Option<Process>,
    /// Whether that has been killed because of an order.
    is_killed: bool,
    /// The groups that it has entered.
    place: Option<Membership>,
}

/// Keeps the socket until the shim is gone. `shim` is its end of a socket pair of packets.
pub(super) fn keep(socket: RawFd, shim: RawFd) -> u8 {
    let mut keeper = Keeper {
        socket,
        shim,
        order: Order::Idle { number: 0 },
        awaited: None,
        is_ready: false,
        receiver: None,
        is_killed: false,
        place: None,
    };
    loop {
        match keeper.next() {
            Ok(()) | Err(Errno::EINTR) => {}
            // The receiver dies with this process.
            Err(_) => return 0,
        }
    }
}

impl Keeper {
    /// Waits for the next thing to do, and does it.
    fn next(&mut self) -> nix::Result<()> {
        let wants_message = self.receiver.is_none() && matches!(self.order, Order::Receive { .. });
        let pidfd = self.receiver.as_ref().and_then(Process::pidfd).map_or(-1, |pidfd| pidfd.as_raw_fd());
        let of = |fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
        let mut ready = [of(self.shim), of(pidfd), of(if wants_message { self.socket } else { -1 })];
        let limit = if self.is_killed && self.place.is_some() { STUCK } else { -1 };
        // SAFETY: as many as there are; a negative number is left out.
        if Errno::result(unsafe { libc::poll(ready.as_mut_ptr(), ready.len() as _, limit) })? == 0 {
            self.expel_receiver();
        }
        let [shim, receiver, message] = ready.map(|one| one.revents != 0);
        if shim {
            self.obey()?;
        } else if receiver {
            self.receiver_ended();
        } else if message {
            self.start_receiver();
        }
        Ok(())
    }

    fn obey(&mut self) -> nix::Result<()> {
        let mut packet = [0; ORDER_LONGEST];
        let length = recv(self.shim, &mut packet, MsgFlags::empty())?;
        if length == 0 {
            return Err(Errno::EPIPE);
        }
        self.order = Order::decode(&packet[..length]);
        self.is_ready = false;
        if let Some(receiver) = &self.receiver {
            // Until it has ended there is no other one: it may hang in the close of a descriptor.
            let _ = receiver.signal(SignalNumber::KILL);
            self.is_killed = true;
        }
        self.awaited = match self.order {
            Order::Idle { number } => Some(number),
            Order::Receive { .. } => None,
        };
        if self.receiver.is_none() || self.place.is_none() {
            self.has_left();
        }
        Ok(())
    }

    /// Nothing of podshim's is in the container's groups.
    fn has_left(&mut self) {
        if let Some(number) = self.awaited.take() {
            // A shim that does not hear it waits no longer than its limit.
            let _ = send(
                self.shim,
                &Announcement::encode_left(number),
                MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL,
            );
        }
    }

    /// A while, or until the shim wants something.
    fn pause(&self) {
        let mut shim = libc::pollfd { fd: self.shim, events: libc::POLLIN, revents: 0 };
        // SAFETY: it is one.
        unsafe { libc::poll(&raw mut shim, 1, PAUSE) };
    }

    /// The receiver hangs in the close of a descriptor, though killed: it may not keep the container's groups.
    fn expel_receiver(&mut self) {
        if let (Some(place), Some(receiver)) = (self.place.take(), &self.receiver) {
            place.expel(receiver.pid());
        }
        self.has_left();
    }

    fn receiver_ended(&mut self) {
        let Some(receiver) = self.receiver.take() else { return };
        let mut status = 0;
        // SAFETY: the kernel writes one number. It is this process's child, and has ended.
        unsafe { libc::waitpid(receiver.pid().as_raw(), &raw mut status, 0) };
        self.place = None;
        self.has_left();
        if std::mem::take(&mut self.is_killed) {
            return;
        }
        self.is_ready |= libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == i32::from(receiver::READY);
        self.pause();
    }

    fn start_receiver(&mut self) {
        let Order::Receive { run, container } = &self.order else { return };
        let keeper = getpid();
        // SAFETY: this process has one thread.
        match unsafe { fork() } {
            Ok(ForkResult::Child) => {
                let receiver = Receiver {
                    socket: self.socket,
                    shim: self.shim,
                    run: *run,
                    container: container.as_ref(),
                    is_ready: self.is_ready,
                };
                let code = if dies_with(keeper) { receiver.receive() } else { helper_process::NOT_BEGUN };
                // SAFETY: ends the process at once.
                unsafe { libc::_exit(code.into()) }
            }
            // invariant for the pid: only this process waits for its child.
            Ok(ForkResult::Parent { child }) => {
                self.place.clone_from(container);
                self.receiver = Some(Process::open(child).unwrap_or(Process::exited(child)))
            }
            // The node has no process left.
            Err(_) => self.pause(),
        }
    }
}

fn dies_with(parent: Pid) -> bool {
    nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGKILL).is_ok()
        && nix::unistd::getppid() == parent
}
