//! The steps by which a child of the shim becomes a sandbox, each a few system calls.
//!
//! The child runs in the shim's memory: a step may do nothing but system calls on what was prepared before. No allocation, no
//! lock, no panic, and no function of the C library that keeps books (`setresuid` there would change every thread of the
//! shim).

use std::ffi::{CStr, CString, c_int, c_long, c_void};
use std::os::fd::RawFd;
use std::ptr::{null, null_mut};

/// Capabilities that a kernel may have; dropping one that it has not fails harmlessly.
const LAST_CAPABILITY: c_long = 63;
const KEYCTL_JOIN_SESSION_KEYRING: c_long = 1;
/// `_LINUX_CAPABILITY_VERSION_3`.
const CAPABILITY_VERSION: u32 = 0x2008_0522;

/// What the child is to do, each with words for the error.
pub(super) enum Step {
    /// Closes its copy of the shim's socket, so that it sees when the shim closes its own; reports that it is there; waits.
    Barrier {
        own: RawFd,
        shims: RawFd,
    },
    RootOfNamespace,
    /// The rest is done by a child in these namespaces, which becomes the shim's child.
    Inside(c_int),
    EnterGroup(RawFd),
    Join(RawFd, c_int),
    Unshare(c_int),
    Write(CString, CString),
    Hostname(CString),
    Domainname(CString),
    LoopbackUp,
    SessionKeyring(CString),
    PrivateMounts,
    /// Where, with which options, with which streams.
    EmptyRoot(CString, CString, StandardStreams),
    OwnSession,
    Rlimit(u32, u64, u64),
    CloseFiles(RawFd),
    NoCapabilities,
    User(u32, u32),
    NoNewPrivileges,
    Execute(RawFd),
}

/// What the sandbox has for its streams.
pub(super) enum StandardStreams {
    /// A null device of its own.
    Own,
    /// The node's.
    OfNode,
}

impl Step {
    /// For the error: what could not be done.
    pub(super) fn words(&self) -> String {
        match self {
            Self::Barrier { .. } => "wait until the shim has prepared it".to_owned(),
            Self::RootOfNamespace => "become root of its user namespace".to_owned(),
            Self::Inside(_) => "make namespaces that its user namespace owns".to_owned(),
            Self::EnterGroup(_) => "enter a control group".to_owned(),
            Self::Join(..) => "join a namespace".to_owned(),
            Self::Unshare(_) => "make a control group namespace".to_owned(),
            Self::Write(path, text) => format!("write {text:?} to {}", path.to_string_lossy()),
            Self::Hostname(name) => format!("set the hostname {name:?}"),
            Self::Domainname(name) => format!("set the domain name {name:?}"),
            Self::LoopbackUp => "set its loopback interface up".to_owned(),
            Self::SessionKeyring(_) => "make a session keyring".to_owned(),
            Self::PrivateMounts => "make the mounts private".to_owned(),
            Self::EmptyRoot(path, ..) => format!("make an empty root at {}", path.to_string_lossy()),
            Self::OwnSession => "make a session".to_owned(),
            Self::Rlimit(number, ..) => format!("set the limit of resource {number}"),
            Self::CloseFiles(_) => "close files".to_owned(),
            Self::NoCapabilities => "drop the capabilities".to_owned(),
            Self::User(uid, gid) => format!("become user {uid} and group {gid}"),
            Self::NoNewPrivileges => "give up new privileges".to_owned(),
            Self::Execute(_) => "execute the sandbox's program".to_owned(),
        }
    }
}

/// The result of a system call.
fn checked(result: c_long) -> Result<(), c_int> {
    if result < 0 {
        // SAFETY: the place of this thread's error number, which the shim's waiting thread shares.
        return Err(unsafe { *libc::__errno_location() });
    }
    Ok(())
}

fn unless(known: c_int, result: Result<(), c_int>) -> Result<(), c_int> {
    result.or_else(|error| if error == known { Ok(()) } else { Err(error) })
}

/// Does one step by system calls alone.
///
/// # Safety
/// It changes the calling process for good: only for the child of `clone`.
pub(super) unsafe fn act(
    step: &Step,
    argv: &[*const libc::c_char; 2],
    envp: &[*const libc::c_char; 1],
) -> Result<(), c_int> {
    use libc::syscall;
    let none = null::<c_void>();
    // SAFETY: every pointer is to memory that was prepared before the clone and outlives it; the kernel only reads.
    unsafe {
        match step {
            Step::Barrier { own, shims } => {
                checked(syscall(libc::SYS_close, *shims))?;
                checked(syscall(libc::SYS_write, *own, c"1".as_ptr(), 1_usize))?;
                let mut byte = 0_u8;
                match syscall(libc::SYS_read, *own, &raw mut byte, 1_usize) {
                    // The shim gave it up, or is gone.
                    0 => Err(libc::ECANCELED),
                    result => checked(result),
                }
            }
            Step::RootOfNamespace => {
                checked(syscall(libc::SYS_setresgid, 0, 0, 0))?;
                checked(syscall(libc::SYS_setresuid, 0, 0, 0))?;
                close()
            }
            // `maker` does it.
            Step::Inside(_) => Err(libc::EINVAL),
            Step::EnterGroup(file) => checked(syscall(libc::SYS_write, *file, c"0".as_ptr(), 1_usize)),
            Step::Join(file, kind) => {
                if *kind == libc::CLONE_NEWUSER {
                    close()?;
                }
                checked(syscall(libc::SYS_setns, *file, *kind))
            }
            Step::Unshare(flags) => checked(syscall(libc::SYS_unshare, *flags)),
            Step::Write(path, text) => {
                let flags = libc::O_WRONLY | libc::O_CLOEXEC;
                let file = syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags, 0);
                checked(file)?;
                checked(syscall(libc::SYS_write, file, text.as_ptr(), text.count_bytes()))?;
                checked(syscall(libc::SYS_close, file))
            }
            Step::Hostname(name) => {
                checked(syscall(libc::SYS_sethostname, name.as_ptr(), name.count_bytes()))
            }
            Step::Domainname(name) => {
                checked(syscall(libc::SYS_setdomainname, name.as_ptr(), name.count_bytes()))
            }
            Step::LoopbackUp => loopback_up(),
            // A kernel without keyrings has nothing to keep apart (runc does the same).
            Step::SessionKeyring(name) => unless(
                libc::ENOSYS,
                checked(syscall(libc::SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, name.as_ptr())),
            ),
            Step::PrivateMounts => {
                let flags = libc::MS_REC | libc::MS_PRIVATE;
                checked(syscall(libc::SYS_mount, none, c"/".as_ptr(), none, flags, none))
            }
            Step::EmptyRoot(path, options, streams) => {
                if let StandardStreams::OfNode = streams {
                    streams_of(c"/dev/null", libc::O_RDWR)?;
                }
                let flags = libc::MS_NOSUID | libc::MS_NOEXEC;
                let tmpfs = c"tmpfs".as_ptr();
                checked(syscall(libc::SYS_mount, tmpfs, path.as_ptr(), tmpfs, flags, options.as_ptr()))?;
                checked(syscall(libc::SYS_chdir, path.as_ptr()))?;
                if let StandardStreams::Own = streams {
                    own_streams()?;
                }
                // Of the mount alone: the file system cannot become read-only while it has an open file without a name.
                let flags = flags | libc::MS_REMOUNT | libc::MS_BIND | libc::MS_RDONLY | libc::MS_NODEV;
                checked(syscall(libc::SYS_mount, none, c".".as_ptr(), none, flags, none))?;
                // The old root is then on top of the new one, and goes with everything below it.
                checked(syscall(libc::SYS_pivot_root, c".".as_ptr(), c".".as_ptr()))?;
                checked(syscall(libc::SYS_umount2, c".".as_ptr(), libc::MNT_DETACH))?;
                checked(syscall(libc::SYS_chdir, c"/".as_ptr()))
            }
            Step::OwnSession => checked(syscall(libc::SYS_setsid)),
            Step::Rlimit(number, soft, hard) => {
                let limit = libc::rlimit64 { rlim_cur: *soft, rlim_max: *hard };
                checked(syscall(libc::SYS_prlimit64, 0, *number, &raw const limit, null_mut::<c_void>()))
            }
            // Before Linux 5.9 there is no such call; every file of the shim closes itself at the exec.
            Step::CloseFiles(kept) => {
                if *kept > 3 {
                    unless(libc::ENOSYS, checked(syscall(libc::SYS_close_range, 3, *kept - 1, 0)))?;
                }
                unless(libc::ENOSYS, checked(syscall(libc::SYS_close_range, *kept + 1, c_int::MAX, 0)))
            }
            Step::NoCapabilities => {
                close()?;
                for capability in 0..=LAST_CAPABILITY {
                    let dropped =
                        checked(syscall(libc::SYS_prctl, libc::PR_CAPBSET_DROP, capability, 0, 0, 0));
                    unless(libc::EINVAL, dropped)?;
                }
                let cleared =
                    syscall(libc::SYS_prctl, libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
                unless(libc::EINVAL, checked(cleared))
            }
            Step::User(uid, gid) => {
                checked(syscall(libc::SYS_setgroups, 0, none))?;
                checked(syscall(libc::SYS_setresgid, *gid, *gid, *gid))?;
                checked(syscall(libc::SYS_setresuid, *uid, *uid, *uid))?;
                close()?;
                // Root loses its capabilities too.
                let (header, sets) = ([CAPABILITY_VERSION, 0], [0_u32; 6]);
                checked(syscall(libc::SYS_capset, header.as_ptr(), sets.as_ptr()))
            }
            Step::NoNewPrivileges => checked(syscall(libc::SYS_prctl, libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)),
            Step::Execute(program) => {
                let flags = libc::AT_EMPTY_PATH;
                checked(syscall(
                    libc::SYS_execveat,
                    *program,
                    c"".as_ptr(),
                    argv.as_ptr(),
                    envp.as_ptr(),
                    flags,
                ))
            }
        }
    }
}

/// Closes the memory, which is the shim's, to other processes: before the child has fewer rights than the shim, and once more when it
/// has become another user, for which the kernel opens it where `fs.suid_dumpable` is 1.
fn close() -> Result<(), c_int> {
    // SAFETY: sets a flag of this memory, which the shim's waiting thread resets.
    checked(unsafe { libc::syscall(libc::SYS_prctl, libc::PR_SET_DUMPABLE, 0, 0, 0, 0) })
}

/// In a new network namespace `lo` is down. The OCI runtimes set it up, too.
fn loopback_up() -> Result<(), c_int> {
    let mut request = libc::ifreq {
        ifr_name: [0; libc::IFNAMSIZ],
        // The kernel ignores the flags that a user may not change.
        ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags: libc::IFF_UP as libc::c_short },
    };
    for (place, letter) in request.ifr_name.iter_mut().zip(c"lo".to_bytes()) {
        *place = letter.cast_signed() as libc::c_char;
    }
    let kind = libc::SOCK_DGRAM | libc::SOCK_CLOEXEC;
    // SAFETY: the kernel only reads the request.
    unsafe {
        let socket = libc::syscall(libc::SYS_socket, libc::AF_INET, kind, 0);
        checked(socket)?;
        checked(libc::syscall(libc::SYS_ioctl, socket, libc::SIOCSIFFLAGS, &raw const request))?;
        checked(libc::syscall(libc::SYS_close, socket))
    }
}

/// A null device of its own for its streams, made in the current directory, and without a name afterwards. A container with
/// CAP_SYS_PTRACE in a shared pid namespace has what process 1 has open, and could change the mode of the node's device. Where root
/// may make none, as on a node that is a container, an empty file does: the program reads and writes nothing.
///
/// # Safety
/// As `act`.
unsafe fn own_streams() -> Result<(), c_int> {
    use libc::syscall;
    let name = c"null";
    let mode = libc::S_IFCHR | 0o666;
    // SAFETY: the name is a constant.
    unsafe {
        let made =
            checked(syscall(libc::SYS_mknodat, libc::AT_FDCWD, name.as_ptr(), mode, libc::makedev(1, 3)));
        if made == Err(libc::EPERM) {
            checked(syscall(libc::SYS_mknodat, libc::AT_FDCWD, name.as_ptr(), libc::S_IFREG | 0o400, 0))?;
            // A mount with a file that is open for writing cannot become read-only.
            streams_of(name, libc::O_RDONLY)?;
        } else {
            made?;
            streams_of(name, libc::O_RDWR)?;
        }
        checked(syscall(libc::SYS_unlinkat, libc::AT_FDCWD, name.as_ptr(), 0))
    }
}

/// One file for all three streams.
///
/// # Safety
/// As `act`.
unsafe fn streams_of(file: &CStr, access: c_int) -> Result<(), c_int> {
    use libc::syscall;
    let flags = access | libc::O_CLOEXEC;
    // SAFETY: the kernel only reads the name.
    unsafe {
        let null = syscall(libc::SYS_openat, libc::AT_FDCWD, file.as_ptr(), flags, 0);
        checked(null)?;
        for stream in 0..=2 {
            if null == stream {
                checked(syscall(libc::SYS_fcntl, null, libc::F_SETFD, 0))?;
            } else {
                checked(syscall(libc::SYS_dup3, null, stream, 0))?;
            }
        }
    }
    Ok(())
}
