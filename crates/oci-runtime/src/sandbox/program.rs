//! The sandbox's program as a file that can be executed and never changed.

use std::{
    fs::File,
    io::{self, Write},
};

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

/// What `build.rs` built from `pause/pause.rs`.
const PAUSE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/pause"));

/// The program in memory, sealed.
///
/// # Errors
/// The kernel has no memory files, or no memory.
pub(super) fn open() -> io::Result<File> {
    // From Linux 6.3 on a memory file that says nothing may be refused to be executed.
    let executable = MFdFlags::from_bits_retain(libc::MFD_EXEC);
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let file = memfd_create(c"pause", flags | executable).or_else(|_| memfd_create(c"pause", flags))?;
    let mut file = File::from(file);
    file.write_all(PAUSE)?;
    let seals =
        SealFlag::F_SEAL_SEAL | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_WRITE;
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
    Ok(file)
}
