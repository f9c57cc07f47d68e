//! Opening files that a process of a container may have opened too, such as those of its groups, without a wait for it.
//!
//! With root's number a process needs no privilege for a lease on a file (`F_SETLEASE`): an open then waits until the holder gives way,
//! 45 s a file (`fs.lease-break-time`), and with `O_NONBLOCK` it fails at once. Reads and writes of an open file wait for no lease.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The text of such a file.
///
/// # Errors
/// The kernel's; `WouldBlock` if a process has a lease on it.
pub fn read(path: impl AsRef<Path>) -> io::Result<String> {
    let mut text = String::new();
    open(path.as_ref(), File::options().read(true))?.read_to_string(&mut text)?;
    Ok(text)
}

/// Writes into such a file, which is there.
///
/// # Errors
/// As [`read`].
pub fn write(path: impl AsRef<Path>, text: &str) -> io::Result<()> {
    open(path.as_ref(), File::options().write(true))?.write_all(text.as_bytes())
}

/// Opens such a file.
///
/// # Errors
/// As [`read`].
pub fn open(path: &Path, options: &mut OpenOptions) -> io::Result<File> {
    options.custom_flags(libc::O_NONBLOCK).open(path)
}
