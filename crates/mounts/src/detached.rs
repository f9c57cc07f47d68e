//! Mounts that are in no mount namespace until they are attached, and end with their last descriptor (Linux 5.2 and later). Owns
//! the calls, for which neither libc nor nix has functions. Knows no path of podshim's, and logs nothing.

use std::ffi::{CString, c_char, c_int, c_long};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null;

use nix::errno::Errno;

/// A copy of the mount that `source` is in, from `source` on.
///
/// # Errors
/// The kernel's, without the path.
pub fn copy(source: &Path) -> io::Result<OwnedFd> {
    let path = CString::new(source.as_os_str().as_bytes())?;
    let flags = libc::OPEN_TREE_CLONE | libc::OPEN_TREE_CLOEXEC;
    // SAFETY: the kernel reads the path.
    made(unsafe { libc::syscall(libc::SYS_open_tree, libc::AT_FDCWD, path.as_ptr(), flags) })
}

/// A new file system in memory.
///
/// # Errors
/// The kernel's.
pub fn new_tmpfs() -> io::Result<OwnedFd> {
    // SAFETY: the kernel reads the text.
    let context = made(unsafe { libc::syscall(libc::SYS_fsopen, c"tmpfs".as_ptr(), libc::FSOPEN_CLOEXEC) })?;
    let (number, none) = (context.as_raw_fd(), null::<c_char>());
    // SAFETY: this command takes neither a key nor a value.
    let created =
        unsafe { libc::syscall(libc::SYS_fsconfig, number, libc::FSCONFIG_CMD_CREATE, none, none, 0) };
    Errno::result(created)?;
    let (flags, attributes) = (libc::FSMOUNT_CLOEXEC, libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV);
    // SAFETY: only numbers.
    made(unsafe { libc::syscall(libc::SYS_fsmount, number, flags, attributes) })
}

/// Sets attributes of a mount (`MOUNT_ATTR_*`). `user_namespace` is that of `MOUNT_ATTR_IDMAP` (Linux 5.12 and later).
///
/// # Errors
/// The kernel's: EINVAL if the file system cannot be mapped.
pub fn set_attributes(mount: &OwnedFd, attributes: u64, user_namespace: Option<&OwnedFd>) -> io::Result<()> {
    let userns_fd = user_namespace.map_or(0, |namespace| namespace.as_raw_fd().cast_unsigned().into());
    let change = libc::mount_attr { attr_set: attributes, attr_clr: 0, propagation: 0, userns_fd };
    // SAFETY: the kernel reads the empty path and the attributes.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            &raw const change,
            size_of_val(&change),
        )
    };
    Ok(Errno::result(result).map(drop)?)
}

/// Attaches a mount at `path` below `directory`; at `directory` itself if the path is empty.
///
/// # Errors
/// The kernel's.
pub fn attach(mount: &OwnedFd, directory: impl AsFd, path: &Path) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let flags = libc::MOVE_MOUNT_F_EMPTY_PATH | libc::MOVE_MOUNT_T_EMPTY_PATH;
    // SAFETY: the kernel reads both paths.
    let result = unsafe {
        libc::syscall(
            libc::SYS_move_mount,
            mount.as_raw_fd(),
            c"".as_ptr(),
            directory.as_fd().as_raw_fd(),
            path.as_ptr(),
            flags,
        )
    };
    Ok(Errno::result(result).map(drop)?)
}

/// A descriptor that the kernel has just made.
fn made(result: c_long) -> io::Result<OwnedFd> {
    let number = Errno::result(result)?;
    let number = c_int::try_from(number).map_err(|_| io::Error::from(Errno::EBADF))?;
    // SAFETY: it is this call's alone.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}
