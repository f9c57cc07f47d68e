//! Makes the process of a sandbox: one `clone`, some thirty system calls of the child, and the program.
//!
//! The child runs in the shim's memory while the shim waits (`CLONE_VM | CLONE_VFORK`): no page is copied, and none is left
//! behind. So it may do nothing but system calls on what was prepared before: no allocation, no lock, no panic, and no
//! function of the C library that keeps books (`setresuid` there would change every thread of the shim).
//!
//! Owns the order of these calls. What they are made from is `request`'s and `groups`'.

use std::{
    ffi::{CString, OsStr, c_int, c_long, c_void},
    fs::File,
    io,
    os::{
        fd::{AsRawFd, RawFd},
        unix::{ffi::OsStrExt, fs::MetadataExt},
    },
    path::Path,
    ptr::{null, null_mut},
};

use nix::{
    sys::signal::{SigSet, SigmaskHow, sigprocmask},
    unistd::Pid,
};
use thiserror::Error;

use super::program;
use super::request::{NamespaceKind, SandboxRequest};
use crate::runtime::settings::SessionKeyring;

/// The child's stack. The deepest call has some hundred bytes of arguments.
const STACK: usize = 32 * 1024;
/// Capabilities that a kernel may have; dropping one that it has not fails harmlessly.
const LAST_CAPABILITY: c_long = 63;
const KEYCTL_JOIN_SESSION_KEYRING: c_long = 1;
/// `_LINUX_CAPABILITY_VERSION_3`.
const CAPABILITY_VERSION: u32 = 0x2008_0522;

/// Why the process could not be made.
#[derive(Debug, Error)]
#[error("cannot {step}: {source}")]
pub(crate) struct MakeError {
    step: String,
    source: io::Error,
}

impl MakeError {
    pub(super) fn new(step: impl Into<String>, source: io::Error) -> Self {
        Self { step: step.into(), source }
    }
}

/// What the child is to do, each with words for the error.
enum Step {
    EnterGroup(RawFd),
    Join(RawFd, c_int),
    Unshare(c_int),
    Write(CString, CString),
    Hostname(CString),
    Domainname(CString),
    SessionKeyring(CString),
    PrivateMounts,
    EmptyRoot(CString),
    OwnSession,
    Rlimit(u32, u64, u64),
    CloseFiles(RawFd),
    NoCapabilities,
    User(u32, u32),
    NoNewPrivileges,
    Execute(RawFd),
}

/// The child's work, and what it reports.
struct Child {
    steps: Vec<Step>,
    argv: [*const libc::c_char; 2],
    envp: [*const libc::c_char; 1],
    /// The step that failed, and the kernel's number.
    failed: Option<(usize, c_int)>,
}

/// Makes the process, whose root is mounted on `root`, in the groups with these entrances. It runs its program when this
/// returns.
///
/// # Errors
/// The step that failed. No process is left then but a zombie, which the reaper takes.
pub(crate) fn make(
    request: &SandboxRequest,
    id: &str,
    root: &Path,
    entrances: &[File],
    keyring: SessionKeyring,
) -> Result<Pid, MakeError> {
    let program =
        program::open().map_err(|error| MakeError::new("keep the sandbox's program in memory", error))?;
    let mut joined = Vec::new();
    for (kind, path) in &request.joined {
        let file =
            File::open(path).map_err(|error| MakeError::new(format!("open {}", path.display()), error))?;
        let changes_it = *kind == NamespaceKind::Network
            && request.sysctls.iter().any(|(name, _)| name.starts_with("net/"));
        if changes_it && is_the_nodes_network(&file).map_err(|error| MakeError::new("stat it", error))? {
            let refused = io::Error::from_raw_os_error(libc::EPERM);
            return Err(MakeError::new("change sysctls of the node's network namespace", refused));
        }
        joined.push((file, flag(*kind)));
    }
    let text = |text: &OsStr| {
        CString::new(text.as_bytes())
            .map_err(|error| MakeError::new("take a text with a NUL byte", error.into()))
    };
    let mut steps: Vec<Step> = entrances.iter().map(|file| Step::EnterGroup(file.as_raw_fd())).collect();
    // In its groups first: a control group namespace begins where its maker is.
    // The others are made by the clone itself.
    let in_clone = |kind: &&NamespaceKind| **kind != NamespaceKind::Cgroup;
    if request.new.contains(&NamespaceKind::Cgroup) {
        steps.push(Step::Unshare(libc::CLONE_NEWCGROUP));
    }
    steps.extend(joined.iter().map(|(file, flag)| Step::Join(file.as_raw_fd(), *flag)));
    for (file, value) in &request.sysctls {
        steps.push(Step::Write(text(OsStr::new(&format!("/proc/sys/{file}")))?, text(OsStr::new(value))?));
    }
    if let Some(score) = request.oom_score_adj {
        steps
            .push(Step::Write(c"/proc/self/oom_score_adj".to_owned(), text(OsStr::new(&score.to_string()))?));
    }
    if !request.hostname.is_empty() {
        steps.push(Step::Hostname(text(OsStr::new(&request.hostname))?));
    }
    if !request.domainname.is_empty() {
        steps.push(Step::Domainname(text(OsStr::new(&request.domainname))?));
    }
    if keyring == SessionKeyring::New {
        steps.push(Step::SessionKeyring(text(OsStr::new(&format!("_ses.{id}")))?));
    }
    steps.extend([Step::PrivateMounts, Step::EmptyRoot(text(root.as_os_str())?), Step::OwnSession]);
    steps.extend(request.rlimits.iter().map(|(number, soft, hard)| Step::Rlimit(*number, *soft, *hard)));
    steps.push(Step::CloseFiles(program.as_raw_fd()));
    steps.extend([Step::NoCapabilities, Step::User(request.uid, request.gid), Step::NoNewPrivileges]);
    steps.push(Step::Execute(program.as_raw_fd()));

    let mut child = Child { steps, argv: [c"/pause".as_ptr(), null()], envp: [null()], failed: None };
    let flags = request.new.iter().filter(in_clone).fold(0, |flags, kind| flags | flag(*kind));
    let pid =
        clone(&mut child, flags).map_err(|error| MakeError::new("make the sandbox's process", error))?;
    match child.failed {
        None => Ok(pid),
        Some((step, number)) => {
            let step = child.steps.get(step).map(Step::words).unwrap_or_default();
            Err(MakeError::new(step, io::Error::from_raw_os_error(number)))
        }
    }
}

/// The shim is in the node's.
fn is_the_nodes_network(file: &File) -> io::Result<bool> {
    let (one, own) = (file.metadata()?, std::fs::metadata("/proc/self/ns/net")?);
    Ok((one.dev(), one.ino()) == (own.dev(), own.ino()))
}

fn flag(kind: NamespaceKind) -> c_int {
    match kind {
        NamespaceKind::Cgroup => libc::CLONE_NEWCGROUP,
        NamespaceKind::Ipc => libc::CLONE_NEWIPC,
        NamespaceKind::Mount => libc::CLONE_NEWNS,
        NamespaceKind::Network => libc::CLONE_NEWNET,
        NamespaceKind::Pid => libc::CLONE_NEWPID,
        NamespaceKind::Uts => libc::CLONE_NEWUTS,
    }
}

impl Step {
    /// For the error: what could not be done.
    fn words(&self) -> String {
        match self {
            Self::EnterGroup(_) => "enter a control group".to_owned(),
            Self::Join(..) => "join a namespace".to_owned(),
            Self::Unshare(_) => "make a control group namespace".to_owned(),
            Self::Write(path, text) => format!("write {text:?} to {}", path.to_string_lossy()),
            Self::Hostname(name) => format!("set the hostname {name:?}"),
            Self::Domainname(name) => format!("set the domain name {name:?}"),
            Self::SessionKeyring(_) => "make a session keyring".to_owned(),
            Self::PrivateMounts => "make the mounts private".to_owned(),
            Self::EmptyRoot(path) => format!("make an empty root at {}", path.to_string_lossy()),
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

/// Makes a child that does `child`'s steps, and returns when it has executed its program or has ended.
fn clone(child: &mut Child, namespaces: c_int) -> io::Result<Pid> {
    let mut stack: Vec<u128> = vec![0; STACK / size_of::<u128>()];
    let top: *mut c_void = stack.as_mut_ptr_range().end.cast();
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD | namespaces;
    // A handler of the shim must not run in the child. The program wants all signals blocked, and waits for them.
    let mut before = SigSet::empty();
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::all()), Some(&mut before))?;
    // SAFETY: asks a number of this process.
    let dumpable = unsafe { libc::prctl(libc::PR_GET_DUMPABLE) };
    // SAFETY: the child has a stack of its own, makes only system calls, and is gone from this memory, by execve or exit, when
    // clone returns: until then this thread, the only one that could touch `child`, waits.
    let pid = unsafe { libc::clone(run, top, flags, (&raw mut *child).cast()) };
    let result = if pid < 0 { Err(io::Error::last_os_error()) } else { Ok(Pid::from_raw(pid)) };
    // The kernel has made this memory not dumpable when the child in it became another user.
    // SAFETY: sets a flag of this process to what it was.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, dumpable) };
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&before), None)?;
    drop(stack);
    result
}

/// The child. Ends by executing the program; if a step fails, with its number in `failed`.
extern "C" fn run(child: *mut c_void) -> c_int {
    // SAFETY: `clone` passes a Child, and waits while this runs.
    let child = unsafe { &mut *child.cast::<Child>() };
    for (number, step) in child.steps.iter().enumerate() {
        // SAFETY: see `act`.
        if let Err(error) = unsafe { act(step, &child.argv, &child.envp) } {
            child.failed = Some((number, error));
            break;
        }
    }
    // SAFETY: ends the child at once.
    unsafe { libc::syscall(libc::SYS_exit_group, 1) as c_int }
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
unsafe fn act(
    step: &Step,
    argv: &[*const libc::c_char; 2],
    envp: &[*const libc::c_char; 1],
) -> Result<(), c_int> {
    use libc::syscall;
    let none = null::<c_void>();
    // SAFETY: every pointer is to memory that was prepared before the clone and outlives it; the kernel only reads.
    unsafe {
        match step {
            Step::EnterGroup(file) => checked(syscall(libc::SYS_write, *file, c"0".as_ptr(), 1_usize)),
            Step::Join(file, kind) => checked(syscall(libc::SYS_setns, *file, *kind)),
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
            // A kernel without keyrings has nothing to keep apart (runc does the same).
            Step::SessionKeyring(name) => unless(
                libc::ENOSYS,
                checked(syscall(libc::SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, name.as_ptr())),
            ),
            Step::PrivateMounts => {
                let flags = libc::MS_REC | libc::MS_PRIVATE;
                checked(syscall(libc::SYS_mount, none, c"/".as_ptr(), none, flags, none))
            }
            Step::EmptyRoot(path) => {
                let flags = libc::MS_NOSUID | libc::MS_NOEXEC;
                // A second inode for `no_streams`.
                let options = c"size=4k,nr_inodes=2,mode=555".as_ptr();
                let tmpfs = c"tmpfs".as_ptr();
                checked(syscall(libc::SYS_mount, tmpfs, path.as_ptr(), tmpfs, flags, options))?;
                checked(syscall(libc::SYS_chdir, path.as_ptr()))?;
                no_streams()?;
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
                // Also of root.
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

/// A null device of its own for its streams, made in the current directory, and without a name afterwards. A container with
/// CAP_SYS_PTRACE in a shared pid namespace has what process 1 has open, and could change the mode of the node's device.
///
/// # Safety
/// As `act`.
unsafe fn no_streams() -> Result<(), c_int> {
    use libc::syscall;
    let name = c"null".as_ptr();
    let mode = libc::S_IFCHR | 0o666;
    // SAFETY: the name is a constant.
    unsafe {
        checked(syscall(libc::SYS_mknodat, libc::AT_FDCWD, name, mode, libc::makedev(1, 3)))?;
        let flags = libc::O_RDWR | libc::O_CLOEXEC;
        let null = syscall(libc::SYS_openat, libc::AT_FDCWD, name, flags, 0);
        checked(null)?;
        for stream in 0..=2 {
            if null == stream {
                checked(syscall(libc::SYS_fcntl, null, libc::F_SETFD, 0))?;
            } else {
                checked(syscall(libc::SYS_dup3, null, stream, 0))?;
            }
        }
        checked(syscall(libc::SYS_unlinkat, libc::AT_FDCWD, name, 0))
    }
}
