//! Makes the process of a sandbox: one `clone`, some thirty system calls of the child, and the program.
//!
//! The child runs in the shim's memory while the thread that made it waits (`CLONE_VM | CLONE_VFORK`): no page is copied, and
//! none is left behind.
//!
//! Owns the order of the child's steps. What they are made from is `request`'s and `groups`', what each does is `steps`'.

use std::ffi::{CString, OsStr, c_int, c_void};
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::null;
use std::sync::atomic::{AtomicI32, Ordering};

use nix::unistd::Pid;
use processes::open_files_before;
use thiserror::Error;

use super::barrier::ChildEnd;
use super::clone_into_cgroup::clone_into;
use super::groups::Entrances;
use super::namespace;
use super::our_memory::{self, Closed};
use super::program;
use super::request::{NamespaceKind, OPEN_FILES, SandboxRequest};
use super::steps::{StandardStreams, Step, act};
use crate::keyring::SessionKeyring;

/// The child's stack. The deepest call has some hundred bytes of arguments.
const STACK: usize = 32 * 1024;
/// The caller waits until it has executed its program or has ended.
const IN_OUR_MEMORY: c_int = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PARENT_SETTID;

/// Why the process could not be made.
#[derive(Debug, Error)]
#[error("cannot {step}: {source}")]
pub struct MakeError {
    step: String,
    source: io::Error,
}

impl MakeError {
    pub(super) fn new(step: impl Into<String>, source: io::Error) -> Self {
        Self { step: step.into(), source }
    }
}

/// How the child comes to its control groups.
pub enum CgroupEntry<'a> {
    /// The kernel makes it there, or it goes there by itself.
    Groups(&'a Entrances),
    /// The shim puts it there, and does what else only the node's root may do, while it waits.
    Barrier(&'a ChildEnd),
}

/// All that the child needs: it allocates nothing.
pub struct ChildSetup {
    steps: Vec<Step>,
    namespaces: c_int,
    /// A group of cgroup v2 in which the kernel can make it, and how many steps that saves.
    first_group: Option<(RawFd, usize)>,
    // Open until the child has executed its program.
    _files: Vec<File>,
}

/// The child's work, and what it reports.
struct SandboxChild {
    steps: Vec<Step>,
    argv: [*const libc::c_char; 2],
    envp: [*const libc::c_char; 1],
    /// How many steps have begun.
    begun: usize,
    /// The step that failed, and the kernel's number.
    failed: Option<(usize, c_int)>,
    /// Where the number of the process goes.
    pid: *mut libc::pid_t,
    /// The end of the stack of the process that does what is inside the user namespace.
    inner_stack: *mut c_void,
}

impl ChildSetup {
    /// Prepares the process, whose root will be mounted on `root`.
    ///
    /// # Errors
    /// What the child would need is not there.
    pub fn new(
        request: &SandboxRequest,
        id: &str,
        root: &Path,
        entry: &CgroupEntry<'_>,
        keyring: SessionKeyring,
    ) -> Result<Self, MakeError> {
        let program = program::open(program::PAUSE, c"pause", &request.mount_label)
            .map_err(|error| MakeError::new("keep the sandbox's program in memory", error))?;
        let mut steps = entry_steps(entry, request);
        let first_group = first_group(entry, steps.len());
        let is_user = |kind: NamespaceKind| kind == NamespaceKind::User;
        let joins_user = request.joined.iter().any(|(kind, _)| is_user(*kind));
        // An existing user namespace owns what is made inside of it.
        let is_made_inside = |kind: NamespaceKind| joins_user && request.new.contains(&kind);
        // In its groups first: a control group namespace begins where its maker is.
        // The others are made by the clone itself.
        let in_clone = |kind: &&NamespaceKind| joins_user || **kind != NamespaceKind::Cgroup;
        if request.new.contains(&NamespaceKind::Cgroup) && !joins_user {
            steps.push(Step::Unshare(libc::CLONE_NEWCGROUP));
        }
        let mut files = Vec::new();
        let mut join = |kinds: &dyn Fn(NamespaceKind) -> bool, steps: &mut Vec<Step>| {
            for (kind, path) in request.joined.iter().filter(|(kind, _)| kinds(*kind)) {
                let file = joinable(request, *kind, path)?;
                steps.push(Step::Join(file.as_raw_fd(), flag(*kind)));
                files.push(file);
            }
            Ok::<_, MakeError>(())
        };
        join(&|kind| !is_user(kind), &mut steps)?;
        let (inside, outside) =
            settings(request)?.into_iter().partition::<Vec<_>, _>(|(kind, _)| is_made_inside(*kind));
        steps.extend(outside.into_iter().map(|(_, step)| step));
        if let (Some(score), CgroupEntry::Groups(_)) = (request.oom_score_adj, entry) {
            steps.push(write("/proc/self/oom_score_adj", &score.to_string())?);
        }
        steps.extend(label_steps(request, id, keyring)?);
        let mut limits = first_limits(request, entry);
        let mut namespaces = request.new.iter().filter(in_clone).fold(0, |flags, kind| flags | flag(*kind));
        if joins_user {
            // What only the node's root may do has been done: raise a limit, too.
            steps.append(&mut limits);
            join(&is_user, &mut steps)?;
            steps.extend([Step::RootOfNamespace, Step::Inside(std::mem::take(&mut namespaces))]);
            steps.extend(inside.into_iter().map(|(_, step)| step));
        }
        // The bundle is closed to a user namespace's root. Any directory does: the mount namespace is its own.
        let root = if joins_user { Path::new("/proc") } else { root };
        let is_users = joins_user || request.id_maps.is_some();
        steps.extend([Step::PrivateMounts, empty_root(request, root, is_users)?, Step::OwnSession]);
        steps.append(&mut limits);
        steps.extend(last_steps(request, &program));
        files.push(program);
        Ok(Self { steps, namespaces, first_group, _files: files })
    }

    /// Makes the process, which runs its program when this returns. Its number is in `pid` before its first step.
    ///
    /// # Errors
    /// The step that failed. No process is left then but a zombie, which the reaper takes.
    pub fn make(self, pid: &AtomicI32) -> Result<Pid, MakeError> {
        let (argv, envp) = ([c"/pause".as_ptr(), null()], [null()]);
        let mut inner_stack = stack();
        let mut child = Box::new(SandboxChild {
            steps: self.steps,
            argv,
            envp,
            begun: 0,
            failed: None,
            pid: pid.as_ptr(),
            inner_stack: inner_stack.as_mut_ptr_range().end.cast(),
        });
        make(&mut child, self.namespaces, self.first_group)
            .map_err(|error| MakeError::new("make the sandbox's process", error))?;
        let words = |step: usize| child.steps.get(step).map(Step::words).unwrap_or_default();
        match child.failed {
            Some((step, number)) => Err(MakeError::new(words(step), io::Error::from_raw_os_error(number))),
            // Its end lets this thread go on, too: the kernel's OOM killer, or an operator.
            None if child.begun < child.steps.len() => {
                let error = MakeError::new(
                    words(child.begun.saturating_sub(1)),
                    io::Error::other("the process was killed before it ran its program"),
                );
                // If it waited for another one inside of its namespaces, that one may still use these.
                std::mem::forget((child, inner_stack));
                Err(error)
            }
            None => Ok(Pid::from_raw(pid.load(Ordering::Acquire))),
        }
    }
}

/// The group in which the kernel can make the child, and how many steps that saves.
fn first_group(entry: &CgroupEntry<'_>, entry_steps: usize) -> Option<(RawFd, usize)> {
    match entry {
        CgroupEntry::Groups(entrances) => Some((entrances.unified.as_ref()?.as_raw_fd(), entry_steps)),
        CgroupEntry::Barrier(_) => None,
    }
}

/// What the child sets by itself. The shim does it for one that waits at a barrier.
fn first_limits(request: &SandboxRequest, entry: &CgroupEntry<'_>) -> Vec<Step> {
    let step = |(number, soft, hard)| Step::Rlimit(number, soft, hard);
    match entry {
        CgroupEntry::Groups(_) => request.first_rlimits().map(step).collect(),
        CgroupEntry::Barrier(_) => Vec::new(),
    }
}

/// What the kernel's security modules have to know before the exec, and the session's keyring, whose label is one of them.
fn label_steps(request: &SandboxRequest, id: &str, keyring: SessionKeyring) -> Result<Vec<Step>, MakeError> {
    let (mut steps, has_label) = (Vec::new(), !request.label.is_empty());
    if has_label {
        steps.push(write(&attribute("selinux", "exec"), &request.label)?);
    }
    if keyring == SessionKeyring::New {
        if has_label {
            // Until the exec.
            steps.push(write(&attribute("selinux", "keycreate"), &request.label)?);
        }
        steps.push(Step::SessionKeyring(text(OsStr::new(&format!("_ses.{id}")))?));
    }
    if !request.profile.is_empty() {
        steps.push(write(&attribute("apparmor", "exec"), &format!("exec {}", request.profile))?);
    }
    Ok(steps)
}

fn empty_root(request: &SandboxRequest, root: &Path, is_users: bool) -> Result<Step, MakeError> {
    // No device can be made in a user namespace. The node's own is safe there: no user of the namespace owns it.
    let streams = if is_users { StandardStreams::OfNode } else { StandardStreams::Own };
    Ok(Step::EmptyRoot(text(root.as_os_str())?, root_options(&request.mount_label)?, streams))
}

/// It gives up all that its program does not need, and becomes that.
fn last_steps(request: &SandboxRequest, program: &File) -> Vec<Step> {
    let mut steps = Vec::new();
    // The shim has raised its own.
    let before = || open_files_before().map(|before| (before.rlim_cur, before.rlim_max));
    if let Some((soft, hard)) = request.open_files().or_else(before) {
        steps.push(Step::Rlimit(OPEN_FILES, soft, hard));
    }
    steps.push(Step::CloseFiles(program.as_raw_fd()));
    steps.extend([Step::NoCapabilities, Step::User(request.uid, request.gid), Step::NoNewPrivileges]);
    steps.push(Step::Execute(program.as_raw_fd()));
    steps
}

fn entry_steps(entry: &CgroupEntry<'_>, request: &SandboxRequest) -> Vec<Step> {
    match entry {
        CgroupEntry::Groups(entrances) => {
            entrances.files.iter().map(|file| Step::EnterGroup(file.as_raw_fd())).collect()
        }
        CgroupEntry::Barrier(end) => {
            let mut steps = vec![end.step()];
            // The kernel lets no user make files there who is not one of the namespace's.
            steps.extend(request.id_maps.is_some().then_some(Step::RootOfNamespace));
            steps
        }
    }
}

/// What it sets in its namespaces, by the namespace.
fn settings(request: &SandboxRequest) -> Result<Vec<(NamespaceKind, Step)>, MakeError> {
    let mut settings = Vec::new();
    if request.new.contains(&NamespaceKind::Network) {
        settings.push((NamespaceKind::Network, Step::LoopbackUp));
    }
    for (file, value) in &request.sysctls {
        let is_network = file.starts_with("net/");
        let kind = if is_network { NamespaceKind::Network } else { NamespaceKind::Ipc };
        settings.push((kind, write(&format!("/proc/sys/{file}"), value)?));
    }
    if !request.hostname.is_empty() {
        settings.push((NamespaceKind::Uts, Step::Hostname(text(OsStr::new(&request.hostname))?)));
    }
    if !request.domainname.is_empty() {
        settings.push((NamespaceKind::Uts, Step::Domainname(text(OsStr::new(&request.domainname))?)));
    }
    Ok(settings)
}

/// Opens a namespace.
fn joinable(request: &SandboxRequest, kind: NamespaceKind, path: &Path) -> Result<File, MakeError> {
    let file =
        namespace::open(path).map_err(|error| MakeError::new(format!("open {}", path.display()), error))?;
    let changes_it =
        kind == NamespaceKind::Network && request.sysctls.iter().any(|(name, _)| name.starts_with("net/"));
    if changes_it
        && namespace::is_the_nodes_network(&file).map_err(|error| MakeError::new("stat it", error))?
    {
        let refused = io::Error::from_raw_os_error(libc::EPERM);
        return Err(MakeError::new("change sysctls of the node's network namespace", refused));
    }
    Ok(file)
}

/// Where a security module takes what is to hold after the next exec. The old place is the first module's, which may be another.
fn attribute(module: &str, name: &str) -> String {
    let own = format!("/proc/self/attr/{module}/{name}");
    if Path::new(&own).exists() { own } else { format!("/proc/self/attr/{name}") }
}

/// The second inode is for its streams.
fn root_options(label: &str) -> Result<CString, MakeError> {
    let context = if label.is_empty() { String::new() } else { format!(",context=\"{label}\"") };
    text(OsStr::new(&format!("size=4k,nr_inodes=2,mode=555{context}")))
}

fn write(path: &str, value: &str) -> Result<Step, MakeError> {
    Ok(Step::Write(text(OsStr::new(path))?, text(OsStr::new(value))?))
}

fn text(text: &OsStr) -> Result<CString, MakeError> {
    CString::new(text.as_bytes()).map_err(|error| MakeError::new("take a text with a NUL byte", error.into()))
}

fn flag(kind: NamespaceKind) -> c_int {
    match kind {
        NamespaceKind::Cgroup => libc::CLONE_NEWCGROUP,
        NamespaceKind::Ipc => libc::CLONE_NEWIPC,
        NamespaceKind::Mount => libc::CLONE_NEWNS,
        NamespaceKind::Network => libc::CLONE_NEWNET,
        NamespaceKind::Pid => libc::CLONE_NEWPID,
        NamespaceKind::User => libc::CLONE_NEWUSER,
        NamespaceKind::Uts => libc::CLONE_NEWUTS,
    }
}

/// Only what the child touches of it becomes memory.
fn stack() -> Box<[MaybeUninit<u128>]> {
    Box::new_uninit_slice(STACK / size_of::<u128>())
}

/// Makes a child that does `child`'s steps, and returns when it has executed its program or has ended.
fn make(child: &mut SandboxChild, namespaces: c_int, first_group: Option<(RawFd, usize)>) -> io::Result<()> {
    let mut stack = stack();
    let flags = IN_OUR_MEMORY | namespaces;
    // The program wants all signals blocked, as they are meanwhile, and waits for them.
    let closed = if namespaces & libc::CLONE_NEWUSER == 0 { Closed::by_child() } else { Closed::now() };
    let result = our_memory::with_child(closed, || {
        if let Some((group, saved)) = first_group {
            child.begun = saved;
            // SAFETY: as below.
            let pid =
                unsafe { clone_into(group, &mut stack, flags, child.pid, run, (&raw mut *child).cast()) };
            if pid >= 0 {
                return pid;
            }
            // An older kernel, a seccomp filter that does not know the call, or a `pids.max` that bounds a clone and no move.
            child.begun = 0;
        }
        let (top, number): (*mut c_void, _) = (stack.as_mut_ptr_range().end.cast(), child.pid);
        // SAFETY: the child has a stack of its own, makes only system calls, and is gone from this memory, by execve or exit,
        // when clone returns: until then this thread, the only one that could touch `child`, waits.
        unsafe { libc::clone(run, top, flags | libc::SIGCHLD, (&raw mut *child).cast(), number) }
    });
    drop(stack);
    result
}

/// The child. Ends by executing the program; if a step fails, with its number in `failed`.
extern "C" fn run(child: *mut c_void) -> c_int {
    // SAFETY: `clone` passes a SandboxChild, and waits while this runs.
    let child = unsafe { &mut *child.cast::<SandboxChild>() };
    while let Some(step) = child.steps.get(child.begun) {
        child.begun += 1;
        let result = match step {
            &Step::Inside(namespaces) => {
                let flags = IN_OUR_MEMORY | libc::CLONE_PARENT | namespaces;
                // SAFETY: as in `clone`. The inner child goes on behind this step, on a stack of its own, and this one ends when
                // it may run again.
                let pid = unsafe {
                    libc::clone(run, child.inner_stack, flags, (&raw mut *child).cast(), child.pid)
                };
                if pid >= 0 {
                    break;
                }
                // SAFETY: the place of this thread's error number.
                Err(unsafe { *libc::__errno_location() })
            }
            // SAFETY: see `act`.
            step => unsafe { act(step, &child.argv, &child.envp) },
        };
        if let Err(error) = result {
            child.failed = Some((child.begun - 1, error));
            break;
        }
    }
    // SAFETY: ends the child at once.
    unsafe { libc::syscall(libc::SYS_exit_group, 1) as c_int }
}
