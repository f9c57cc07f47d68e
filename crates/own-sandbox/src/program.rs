//! The sandbox's program as a file that can be executed and never changed.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;

use mounts::detached;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, SealFlag, fcntl, openat};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::stat::Mode;

/// What `build.rs` built from `pause/pause.rs`.
const PAUSE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/pause"));

/// All users may execute its file, and none may read it: a process that may not read its own program is not dumpable from the
/// exec on, so that there is no moment in which another process of the same user may look into it.
const MODE: u32 = 0o111;

/// The program, with the label that SELinux lets the sandbox execute, if any.
///
/// # Errors
/// The kernel has neither files nor file systems in memory, or no memory; or SELinux does not let podshim label it.
pub(super) fn open(label: &str) -> io::Result<File> {
    match in_a_file(label) {
        // `vm.memfd_noexec` 2 forbids the execution of all such files (Linux 6.3 and later).
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => in_a_file_system(label),
        result => result,
    }
}

/// In a file in memory, sealed.
fn in_a_file(label: &str) -> io::Result<File> {
    // At 1 a file is executable only if it asks for it.
    let executable = MFdFlags::from_bits_retain(libc::MFD_EXEC);
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let file = match memfd_create(c"pause", flags | executable) {
        // Linux before 6.3.
        Err(Errno::EINVAL) => memfd_create(c"pause", flags)?,
        result => result?,
    };
    let mut file = File::from(file);
    write(&mut file, label)?;
    let seals =
        SealFlag::F_SEAL_SEAL | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_WRITE;
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
    Ok(file)
}

/// In a file system in memory of its own, which is mounted nowhere and read-only. Not on the node's disk: what podshim may write
/// to below /run is often not executable.
fn in_a_file_system(label: &str) -> io::Result<File> {
    let mount = detached::new_tmpfs()?;
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_CLOEXEC;
    let mut written = File::from(openat(&mount, c"pause", flags, Mode::empty())?);
    write(&mut written, label)?;
    // What is open for writing cannot be executed.
    drop(written);
    detached::set_attributes(&mount, libc::MOUNT_ATTR_RDONLY, None)?;
    Ok(openat(&mount, c"pause", OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())?.into())
}

fn write(file: &mut File, label: &str) -> io::Result<()> {
    file.write_all(PAUSE)?;
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
            let file = open("").unwrap();
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
