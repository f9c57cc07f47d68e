//! The anonymous pipes: to whom they belong, and how much is in one.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use nix::fcntl::OFlag;
use nix::unistd::pipe2;

use super::paths::StreamOwner;

pub(super) fn nonblocking_pipe() -> io::Result<(File, File)> {
    let (reader, writer) = pipe2(OFlag::O_CLOEXEC | OFlag::O_NONBLOCK)?;
    Ok((reader.into(), writer.into()))
}

pub(super) fn give_to(file: &File, owner: StreamOwner) -> io::Result<()> {
    if owner == StreamOwner::default() {
        return Ok(());
    }
    std::os::unix::fs::fchown(file, owner.user, owner.group)
}

/// Bytes that are in a pipe, given its read end.
pub(super) fn unread(reader: &File) -> io::Result<u64> {
    let mut unread: libc::c_int = 0;
    // SAFETY: FIONREAD writes one int, which outlives the call.
    match unsafe { libc::ioctl(reader.as_raw_fd(), libc::FIONREAD, &mut unread) } {
        0 => Ok(unread.unsigned_abs().into()),
        _ => Err(io::Error::last_os_error()),
    }
}
