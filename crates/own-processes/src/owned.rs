//! Namespaces that belong to a pod's user namespace.
//!
//! A thread may enter every namespace but this one: the kernel takes only a process of one thread. So a child makes what the user
//! namespace is to own, in the shim's memory and with the shim's table of files: it opens the result there and ends.

use std::ffi::{CStr, c_int, c_void};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns};

use super::our_memory::{self, Closed};

/// `NS_GET_USERNS` of `ioctl_ns`.
const GET_OWNER: libc::c_ulong = 0xb701;
/// Two system calls deep.
const STACK: usize = 16 * 1024;

/// The user namespace that owns a namespace.
///
/// # Errors
/// The kernel's error, or that the owner is the node's own user namespace.
pub(super) fn owner(namespace: &File) -> io::Result<OwnedFd> {
    // SAFETY: without an argument. The kernel makes a new descriptor.
    let owner = Errno::result(unsafe { libc::ioctl(namespace.as_raw_fd(), GET_OWNER as _) })?;
    // SAFETY: the kernel has just made it for this call alone.
    let owner = File::from(unsafe { OwnedFd::from_raw_fd(owner) });
    let (found, nodes) = (owner.metadata()?, std::fs::metadata("/proc/self/ns/user")?);
    if (found.dev(), found.ino()) == (nodes.dev(), nodes.ino()) {
        return Err(io::Error::other("it is the node's own"));
    }
    Ok(owner.into())
}

/// Makes a namespace of that kind, uts or ipc, which `owner` owns, and enters it with the calling thread.
///
/// # Errors
/// The kernel's.
pub(super) fn enter_new(owner: &OwnedFd, kind: CloneFlags) -> io::Result<()> {
    let path = match kind {
        CloneFlags::CLONE_NEWUTS => c"/proc/self/ns/uts",
        _ => c"/proc/self/ns/ipc",
    };
    Ok(setns(open_inside(owner.as_fd(), kind.bits(), path)?, kind)?)
}

/// A map of a user namespace, as `/proc/PID/uid_map` or `gid_map` has it for a process inside: `file` of `/proc/self`.
///
/// # Errors
/// The kernel's.
pub(super) fn map(namespace: &File, file: &'static CStr) -> io::Result<String> {
    let mut text = String::new();
    File::from(open_inside(namespace.as_fd(), 0, file)?).read_to_string(&mut text)?;
    Ok(text)
}

/// Takes a user's rights for the calling thread, which is to end soon.
///
/// # Errors
/// The kernel's.
pub(super) fn become_user(uid: u32) -> io::Result<()> {
    // The kernel makes the memory of all threads not dumpable.
    let _closed = Closed::now();
    // SAFETY: only numbers. The C library's function would change every thread of the shim.
    Errno::result(unsafe { libc::syscall(libc::SYS_setresuid, u32::MAX, uid, u32::MAX) })?;
    Ok(())
}

struct OpenRequest {
    owner: RawFd,
    /// What is made; 0: nothing.
    kind: c_int,
    path: &'static CStr,
    /// The file, or the kernel's number.
    made: Result<RawFd, c_int>,
}

/// Opens a file of /proc/self in the user namespace `owner`, after new namespaces of `kind`, if any, have been made there.
fn open_inside(owner: BorrowedFd<'_>, kind: c_int, path: &'static CStr) -> io::Result<OwnedFd> {
    let mut request = OpenRequest { owner: owner.as_raw_fd(), kind, path, made: Err(libc::ECANCELED) };
    run(&mut request)?;
    let made = request.made.map_err(io::Error::from_raw_os_error)?;
    // SAFETY: the child has opened it in this table of files, and has ended.
    Ok(unsafe { OwnedFd::from_raw_fd(made) })
}

/// Runs the child to its end.
fn run(request: &mut OpenRequest) -> io::Result<()> {
    let mut stack = Box::<[u128]>::new_uninit_slice(STACK / size_of::<u128>());
    let top: *mut c_void = stack.as_mut_ptr_range().end.cast();
    // Without a signal at its end it is no child that the reaper sees.
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_FILES;
    let made = our_memory::with_child(Closed::now(), || {
        // SAFETY: the child has a stack of its own, makes only system calls, and has ended when clone returns.
        let child = unsafe { libc::clone(make, top, flags, (&raw mut *request).cast()) };
        if child > 0 {
            // SAFETY: takes the child's end, which the reaper does not wait for.
            unsafe { libc::waitpid(child, std::ptr::null_mut(), libc::__WCLONE) };
        }
        child
    });
    drop(stack);
    made
}

/// The child.
extern "C" fn make(request: *mut c_void) -> c_int {
    // SAFETY: `run` passes an OpenRequest, and waits while this runs.
    let request = unsafe { &mut *request.cast::<OpenRequest>() };
    // SAFETY: system calls on what was prepared before.
    request.made = unsafe {
        let result = match libc::syscall(libc::SYS_setns, request.owner, libc::CLONE_NEWUSER) {
            0 => libc::syscall(libc::SYS_unshare, request.kind),
            failed => failed,
        };
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        let result = match result {
            0 => libc::syscall(libc::SYS_openat, libc::AT_FDCWD, request.path.as_ptr(), flags, 0),
            failed => failed,
        };
        RawFd::try_from(result).ok().filter(|file| *file >= 0).ok_or_else(|| *libc::__errno_location())
    };
    // SAFETY: ends the child at once.
    unsafe { libc::syscall(libc::SYS_exit, 0) as c_int }
}
