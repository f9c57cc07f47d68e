//! The sandbox's program as a file that can be executed and never changed.

use std::{
    fs::{File, Permissions},
    io::{self, Write},
    os::unix::fs::PermissionsExt,
};

use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};

/// What `build.rs` built from `pause/pause.rs`.
const PAUSE: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/pause"));

/// Whether the node lets files in memory be executed: `vm.memfd_noexec` 2 forbids all (Linux 6.3 and later).
pub(super) fn may_be_executed() -> bool {
    may_be_executed_with(&std::fs::read_to_string("/proc/sys/vm/memfd_noexec").unwrap_or_default())
}

fn may_be_executed_with(memfd_noexec: &str) -> bool {
    memfd_noexec.trim() != "2"
}

/// The program in memory, sealed.
///
/// Without permission to read: whom the kernel does not let read its program, it makes not dumpable from the exec on, so
/// that there is no moment in which another process of the same user may look into it.
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
    file.set_permissions(Permissions::from_mode(0o111))?;
    let seals =
        SealFlag::F_SEAL_SEAL | SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_WRITE;
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// At 1 a file that asks for it is executable, and this one does.
    #[test]
    fn only_a_node_that_forbids_all_files_in_memory_needs_the_oci_runtime() {
        for (text, expected) in [("", true), ("0\n", true), ("1\n", true), ("2\n", false)] {
            assert_eq!(may_be_executed_with(text), expected, "{text:?}");
        }
    }
}
