//! podshim's small programs as files that can be executed and never changed.

use std::ffi::CStr;
use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;

use mounts::detached;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, SealFlag, fcntl, openat};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::Mode;

/// The sandbox's, as `build.rs` built it from `programs/pause.rs`.
pub(super) const PAUSE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/pause"));
/// That which becomes a process of a container, from `programs/exec.rs`.
pub(super) const EXEC: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/exec"));

/// All users may execute its file, and none may read it: a process that may not read its own program is not dumpable from the
/// exec on, so that there is no moment in which another process of the same user may look into it.
const MODE: u32 = 0o111;

/// A program under that name, with the label that SELinux lets a sandbox execute, if any.
///
/// # Errors
/// The kernel has neither files nor file systems in memory, or no memory; or SELinux does not let podshim label it.
pub(super) fn open(program: &[u8], name: &CStr, label: &str) -> io::Result<File> {
    match in_a_file(program, name, label) {
        // `vm.memfd_noexec` 2 forbids the execution of all such files (Linux 6.3 and later).
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            in_a_file_system(program, name, label)
        }
        result => result,
    }
}

/// A file in memory with that text, for a process that maps it.
///
/// # Errors
/// The kernel has no memory or descriptor left.
pub(super) fn in_memory(name: &CStr, text: &[u8]) -> io::Result<File> {
    let mut file = File::from(memfd_create(name, MFdFlags::MFD_CLOEXEC)?);
    file.write_all(text)?;
    Ok(file)
}

/// In a file in memory, sealed.
fn in_a_file(program: &[u8], name: &CStr, label: &str) -> io::Result<File> {
    // At 1 a file is executable only if it asks for it.
    let executable = MFdFlags::from_bits_retain(libc::MFD_EXEC);
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let file = match memfd_create(name, flags | executable) {
        // Linux before 6.3.
        Err(Errno::EINVAL) => memfd_create(name, flags)?,
        result => result?,
    };
    let mut file = File::from(file);
    write(&mut file, program, label)?;
    let seals =
        SealFlag::F_SEAL_SEAL | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_WRITE;
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
    Ok(file)
}

/// In a file system in memory of its own, which is mounted nowhere and read-only. Not on the node's disk: what podshim may write
/// to below /run is often not executable.
fn in_a_file_system(program: &[u8], name: &CStr, label: &str) -> io::Result<File> {
    let mount = detached::new_tmpfs()?;
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
    let mut written = File::from(openat(&mount, name, flags, Mode::empty())?);
    write(&mut written, program, label)?;
    // What is open for writing cannot be executed.
    drop(written);
    detached::set_attributes(&mount, libc::MOUNT_ATTR_RDONLY, None)?;
    Ok(openat(&mount, name, OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())?.into())
}

fn write(file: &mut File, program: &[u8], label: &str) -> io::Result<()> {
    file.write_all(program)?;
    file.set_permissions(Permissions::from_mode(MODE))?;
    if label.is_empty() {
        return Ok(());
    }
    let (name, label) = (c"security.selinux", label.as_bytes());
    // SAFETY: the kernel reads the name and the label.
    let result =
        unsafe { libc::fsetxattr(file.as_raw_fd(), name.as_ptr(), label.as_ptr().cast(), label.len(), 0) };
    Ok(Errno::result(result).map(drop)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;

    use super::*;

    /// Either file is executed, and cannot be changed.
    #[test]
    #[expect(
        clippy::disallowed_methods,
        reason = "there is no reaper here, and the test waits for its child"
    )]
    fn the_program_can_be_executed_and_not_changed() {
        for open in [in_a_file, in_a_file_system] {
            let file = open(PAUSE, c"pause", "").unwrap();
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            assert!(
                File::options().write(true).open(&path).and_then(|mut file| file.write_all(b"x")).is_err()
            );
            assert_eq!(file.metadata().unwrap().permissions().mode() & 0o777, MODE);
            let mut child = Command::new(path).spawn().unwrap();
            kill(Pid::from_raw(child.id().cast_signed()), Signal::SIGKILL).unwrap();
            assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
        }
    }
}
