//! Makes a child in a group of cgroup v2: `clone3` with `CLONE_INTO_CGROUP` (Linux 5.7).
//!
//! To move a process, the kernel waits until no process of the machine forks or ends: 11 ms in the median, 17 in the worst tenth. Such
//! a clone makes no other process wait, and itself waits only for one that moves a process or makes a group at that moment.
//!
//! Owns the one system call that the C library has no function for: its child has another stack, and so cannot return from a function.

use std::arch::asm;
use std::ffi::{c_int, c_long, c_void};
use std::mem::MaybeUninit;
use std::os::fd::RawFd;

use nix::errno::Errno;

/// Not in the `libc` crate for Linux.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// The child's function, which never returns.
type Child = extern "C" fn(*mut c_void) -> c_int;

/// Makes a child in `group` that runs `child` with `argument` on `stack`, and puts its number into `pid` before that. Returns it, or -1
/// with the thread's error number, as `clone` does.
///
/// # Safety
/// As of `clone` with a function: what `child` touches lives until it has left this memory.
pub(super) unsafe fn clone_into(
    group: RawFd,
    stack: &mut [MaybeUninit<u128>],
    flags: c_int,
    pid: *mut libc::pid_t,
    child: Child,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: clone_args contains only numbers; zero means "none" for each.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.flags = u64::from(flags.cast_unsigned()) | CLONE_INTO_CGROUP;
    arguments.parent_tid = pid.expose_provenance() as u64;
    arguments.exit_signal = libc::SIGCHLD as u64;
    arguments.stack = stack.as_mut_ptr().expose_provenance() as u64;
    arguments.stack_size = size_of_val(stack) as u64;
    arguments.cgroup = group as u64;
    // SAFETY: the caller's.
    let answer = unsafe { clone3(&arguments, child, argument) };
    c_int::try_from(answer).ok().filter(|number| *number >= 0).unwrap_or_else(|| {
        Errno::set_raw(c_int::try_from(-answer).unwrap_or(libc::EINVAL));
        -1
    })
}

/// The call. The kernel starts the child behind it, with the parent's registers, on its own stack, where it calls its function.
#[cfg(target_arch = "x86_64")]
unsafe fn clone3(arguments: &libc::clone_args, child: Child, argument: *mut c_void) -> c_long {
    let answer;
    // SAFETY: the caller's. The kernel changes rcx and r11; what the child changes are registers of its own.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "xor ebp, ebp",
            "mov rdi, r13",
            "call r12",
            "ud2",
            "2:",
            inlateout("rax") libc::SYS_clone3 => answer,
            in("rdi") &raw const *arguments,
            in("rsi") size_of_val(arguments),
            in("r12") child,
            in("r13") argument,
            lateout("rcx") _,
            lateout("r11") _,
        );
    }
    answer
}

/// As above.
#[cfg(target_arch = "aarch64")]
unsafe fn clone3(arguments: &libc::clone_args, child: Child, argument: *mut c_void) -> c_long {
    let answer;
    // SAFETY: the caller's.
    unsafe {
        asm!(
            "svc #0",
            "cbnz x0, 2f",
            "mov x29, xzr",
            "mov x0, x21",
            "blr x20",
            "brk #1",
            "2:",
            inlateout("x0") &raw const *arguments => answer,
            in("x1") size_of_val(arguments),
            in("x8") libc::SYS_clone3,
            in("x20") child,
            in("x21") argument,
        );
    }
    answer
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::fd::AsRawFd;
    use std::thread;
    use std::time::Duration;

    use nix::mount::{MntFlags, MsFlags, mount, umount2};
    use nix::sched::{CloneFlags, unshare};
    use nix::sys::wait::waitpid;
    use nix::unistd::Pid;

    use super::*;

    /// Says where it is, into `text`.
    extern "C" fn says_its_group(text: *mut c_void) -> c_int {
        // SAFETY: only system calls; `text` has room for 4096 bytes.
        unsafe {
            let file = libc::open(c"/proc/self/cgroup".as_ptr(), libc::O_RDONLY);
            libc::read(file, text, 4096);
            libc::syscall(libc::SYS_exit_group, 7) as c_int
        }
    }

    /// On any node with Linux 5.7, for a group of v2 without controllers exists beside v1 too.
    #[test]
    fn a_child_begins_in_its_group() {
        let test = thread::spawn(|| {
            // The mount is this thread's.
            unshare(CloneFlags::CLONE_NEWNS).unwrap();
            let nothing = None::<&str>;
            mount(nothing, "/", nothing, MsFlags::MS_REC | MsFlags::MS_PRIVATE, nothing).unwrap();
            let tree = tempfile::tempdir().unwrap();
            mount(nothing, tree.path(), Some("cgroup2"), MsFlags::empty(), nothing).unwrap();
            let name = format!("podshim-clone-{}", std::process::id());
            let directory = tree.path().join(&name);
            fs::create_dir(&directory).unwrap();
            let group = File::open(&directory).unwrap();
            let mut stack = Box::new_uninit_slice(2048);
            let (mut text, mut pid) = ([0u8; 4096], 0);
            let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PARENT_SETTID;
            // SAFETY: this thread waits until the child has ended.
            let answer = unsafe {
                clone_into(
                    group.as_raw_fd(),
                    &mut stack,
                    flags,
                    &raw mut pid,
                    says_its_group,
                    text.as_mut_ptr().cast(),
                )
            };
            let error = std::io::Error::last_os_error();
            let status = waitpid(Pid::from_raw(pid), None);
            // The kernel takes a dead process from its group a moment later.
            let is_removed = (0..100).any(|_| {
                thread::sleep(Duration::from_millis(10));
                fs::remove_dir(&directory).is_ok()
            });
            // Before the directory's own end, which removes what is below it.
            umount2(tree.path(), MntFlags::MNT_DETACH).unwrap();
            assert!(is_removed, "the group is still there");
            assert!(answer > 0 && answer == pid, "{answer}: {error}");
            assert!(matches!(status, Ok(nix::sys::wait::WaitStatus::Exited(_, 7))), "{status:?}");
            let text = String::from_utf8_lossy(&text).into_owned();
            assert!(text.lines().any(|line| line == format!("0::/{name}")), "{text}");
            // What is no group is refused, with the kernel's reason.
            let other = File::open("/").unwrap();
            // SAFETY: as above.
            let answer = unsafe {
                clone_into(
                    other.as_raw_fd(),
                    &mut stack,
                    flags,
                    &raw mut pid,
                    says_its_group,
                    std::ptr::null_mut(),
                )
            };
            assert_eq!((answer, Errno::last()), (-1, Errno::EBADF));
        });
        test.join().unwrap();
    }
}
