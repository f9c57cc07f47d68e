//! The socket on which a hand lends descriptors to the head, which starts the OCI runtime with them, and the head gives some to a hand.
//!
//! Owns the socket's two ends and the form of a message: a key, and descriptors.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, IoSlice};
use std::mem::zeroed;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::cmsg_space;
use nix::sys::socket::{AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, sendmsg, socketpair};

/// Most descriptors of one message: a process has three streams.
const MOST: usize = 3;

/// One end of the socket.
#[derive(Debug)]
pub(super) struct End {
    socket: OwnedFd,
    /// What came before what was asked for.
    others: RefCell<BTreeMap<u64, Vec<OwnedFd>>>,
}

/// The head's end, and the hand's.
pub(super) fn pair() -> io::Result<(End, End)> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let (heads, hands) = socketpair(AddressFamily::Unix, SockType::SeqPacket, None, flags)?;
    Ok((End::of(heads), End::of(hands)))
}

impl AsRawFd for End {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

impl End {
    fn of(socket: OwnedFd) -> Self {
        Self { socket, others: RefCell::default() }
    }

    /// The hand's end in the table of a thread that has just got a table of its own.
    ///
    /// # Safety
    /// It has kept the number open, and nothing owns it there.
    pub(super) unsafe fn of_this_table(number: RawFd) -> Self {
        // SAFETY: the caller's.
        Self::of(unsafe { OwnedFd::from_raw_fd(number) })
    }

    pub(super) fn send(&self, key: u64, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let numbers: Vec<RawFd> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&numbers)];
        let control = if numbers.is_empty() { &[] } else { &rights[..] };
        let key = key.to_ne_bytes();
        sendmsg::<()>(self.as_raw_fd(), &[IoSlice::new(&key)], control, MsgFlags::empty(), None)?;
        Ok(())
    }

    /// What was sent under `key`, which has come: its sender has said so.
    pub(super) fn take(&self, key: u64) -> io::Result<Vec<OwnedFd>> {
        let mut others = self.others.borrow_mut();
        loop {
            if let Some(descriptors) = others.remove(&key) {
                return Ok(descriptors);
            }
            let mut of = [0; size_of::<u64>()];
            let (_, descriptors) = receive::<MOST>(&self.socket, &mut of, 0)?;
            others.insert(u64::from_ne_bytes(of), descriptors);
        }
    }
}

/// One message, which is not empty, with the descriptors that came along, which are at most so many.
pub(super) fn receive<const MOST: usize>(
    socket: &OwnedFd,
    content: &mut [u8],
    flags: libc::c_int,
) -> io::Result<(usize, Vec<OwnedFd>)> {
    let mut part = libc::iovec { iov_base: content.as_mut_ptr().cast(), iov_len: content.len() };
    let mut control = cmsg_space!([RawFd; MOST]);
    // SAFETY: all zeros are a msghdr without anything.
    let mut message: libc::msghdr = unsafe { zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    message.msg_control = control.as_mut_ptr().cast();
    message.msg_controllen = control.capacity() as _;
    // SAFETY: the message names buffers that outlive the call, with their lengths.
    let length =
        unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, flags | libc::MSG_CMSG_CLOEXEC) };
    let Ok(length) = usize::try_from(length) else { return Err(io::Error::last_os_error()) };
    // SAFETY: the kernel has filled the message.
    let descriptors = unsafe { descriptors_of(&message) };
    // Not nix's: of a message that had no room for all descriptors it shows none, and those that came would stay open.
    if message.msg_flags & libc::MSG_CTRUNC != 0 {
        return Err(io::Error::from_raw_os_error(libc::EMFILE));
    }
    match length {
        0 => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Ok((length, descriptors)),
    }
}

/// The descriptors that came along.
///
/// # Safety
/// The kernel has just filled the message, and nothing owns what came with it.
unsafe fn descriptors_of(message: &libc::msghdr) -> Vec<OwnedFd> {
    let mut descriptors = Vec::new();
    // SAFETY: the caller's; the macros stay within the message's control buffer.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while let Some(found) = header.as_ref() {
            if (found.cmsg_level, found.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
                #[allow(clippy::unnecessary_cast, reason = "it has 32 bits with musl")]
                let bytes = found.cmsg_len as usize - libc::CMSG_LEN(0) as usize;
                let numbers = libc::CMSG_DATA(header).cast::<RawFd>();
                for at in 0..bytes / size_of::<RawFd>() {
                    descriptors.push(OwnedFd::from_raw_fd(numbers.add(at).read_unaligned()));
                }
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
    descriptors
}
