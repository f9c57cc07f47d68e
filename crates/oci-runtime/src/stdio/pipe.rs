//! The anonymous pipes, and to whom they belong.

use std::{fs::File, io};

use nix::{fcntl::OFlag, unistd::pipe2};

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
