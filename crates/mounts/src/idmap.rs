//! Mounts whose file owners are shifted into a user namespace: the options `uidmap=` and `gidmap=`.
//!
//! containerd 2.x asks for them in the rootfs of a pod with user namespaces; it then need not copy and chown a
//! snapshot. Owns the user namespace that describes the mapping. Intermediate mounts stay invisible and are gone when
//! this returns, even after a failure.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use nix::fcntl::{OFlag, open};
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::stat::Mode;
use nix::sys::wait::{Id, WaitPidFlag, waitid};

use super::mapping::IdMapping;
use super::options::MountOptions;
use super::request::RootfsMount;
use crate::detached;

/// Where the mapped layers are assembled, inside a directory of their own.
const ASSEMBLED: &str = "overlay";

/// A user namespace with a mapping, kept alive by its descriptor alone.
pub(super) struct UserNamespace(OwnedFd);

impl UserNamespace {
    /// Makes one. Only a process can be in a new user namespace, so a short-lived process is made for it.
    pub(super) fn new(mapping: &IdMapping) -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        let holder =
            Holder::new(reader.as_raw_fd(), writer.as_raw_fd()).map_err(with_context("user namespace"))?;
        let process = Path::new("/proc").join(holder.pid.to_string());
        fs::write(process.join("uid_map"), &mapping.users).map_err(with_context("uidmap"))?;
        fs::write(process.join("gid_map"), &mapping.groups).map_err(with_context("gidmap"))?;
        let namespace = File::open(process.join("ns/user"))?;
        // The holder ends when this end of its pipe is closed; `Drop` waits for that.
        drop(writer);
        Ok(Self(namespace.into()))
    }

    /// A detached mount of `source` with the mapping.
    pub(super) fn mapped(&self, source: &Path) -> io::Result<OwnedFd> {
        let tree = copy(source)?;
        // EINVAL: this file system does not support it.
        detached::set_attributes(&tree, libc::MOUNT_ATTR_IDMAP, Some(&self.0))
            .map_err(with_context(&format!("id-mapped mount of {}", source.display())))?;
        Ok(tree)
    }
}

/// The process that a new user namespace needs before anything else can use it. It runs no program.
struct Holder {
    pid: libc::c_long,
    pidfd: OwnedFd,
}

impl Holder {
    fn new(reader: RawFd, writer: RawFd) -> io::Result<Self> {
        let mut pidfd: RawFd = -1;
        // SAFETY: clone_args contains only numbers; zero means "none" for each.
        let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
        // No exit signal: the reaper waits for ordinary children and does not see this one.
        arguments.flags = (libc::CLONE_NEWUSER | libc::CLONE_PIDFD) as u64;
        arguments.pidfd = (&raw mut pidfd) as u64;
        // SAFETY: without CLONE_VM this is a fork; the arguments and their size belong to one variable.
        let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const arguments, size_of_val(&arguments)) };
        match pid {
            -1 => Err(io::Error::last_os_error()),
            0 => {
                // SAFETY: the child is a copy of this thread alone: it only makes system calls, on its own descriptors,
                // then ends. It reads until the other process has closed its end of the pipe, or has ended.
                unsafe {
                    libc::close(writer);
                    let mut byte = 0u8;
                    libc::read(reader, (&raw mut byte).cast(), 1);
                    libc::_exit(0)
                }
            }
            // SAFETY: the kernel made this descriptor for this call alone.
            pid => Ok(Self { pid, pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) } }),
        }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        // After a failure the pipe is still open. A failure of either call could not be handled.
        let no_info = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: the descriptor is open for the call; a null siginfo asks for kill(2)'s behaviour.
        unsafe {
            libc::syscall(libc::SYS_pidfd_send_signal, self.pidfd.as_raw_fd(), libc::SIGKILL, no_info, 0)
        };
        let _ = waitid(Id::PIDFd(self.pidfd.as_fd()), WaitPidFlag::WEXITED | WaitPidFlag::__WCLONE);
    }
}

/// Mounts an overlay with mapped lower layers on `target`: an overlay itself cannot be mapped.
///
/// The layers have to be mounted somewhere for that. This thread mounts them in a mount namespace of its own, which
/// leaves nothing behind if the shim is killed; only the finished overlay leaves it.
pub(super) fn mount_overlay(
    target: &Path,
    one: &RootfsMount,
    options: &MountOptions,
    namespace: &UserNamespace,
) -> io::Result<()> {
    let layers: Vec<OwnedFd> =
        options.lower_directories().map(|layer| namespace.mapped(layer)).collect::<io::Result<_>>()?;
    if layers.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "uidmap and gidmap need a lowerdir"));
    }
    let place = open(target, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())?;
    let home = File::open("/proc/thread-self/ns/mnt")?;
    unshare(CloneFlags::CLONE_NEWNS)?;
    let overlay = assemble(target, one, options, &layers);
    setns(home, CloneFlags::CLONE_NEWNS)?;
    detached::attach(&overlay?, place, Path::new(""))
}

fn assemble(
    target: &Path,
    one: &RootfsMount,
    options: &MountOptions,
    layers: &[OwnedFd],
) -> io::Result<OwnedFd> {
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_PRIVATE | MsFlags::MS_REC, none)?;
    // Short names below the working directory: so the options fit, however many layers there are.
    mount(none, target, Some("tmpfs"), MsFlags::empty(), Some("mode=700"))?;
    std::env::set_current_dir(target)?;
    let here = open(".", OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())?;
    let names: Vec<String> = (0..layers.len()).map(|number| number.to_string()).collect();
    for (layer, name) in layers.iter().zip(&names) {
        DirBuilder::new().mode(0o700).create(name)?;
        detached::attach(layer, &here, Path::new(name))?;
    }
    DirBuilder::new().mode(0o700).create(ASSEMBLED)?;
    let data = options.data_with_lower_directories(&names.join(":"))?;
    mount(Some(one.source.as_str()), ASSEMBLED, Some("overlay"), options.flags, Some(data.as_str()))?;
    copy(Path::new(ASSEMBLED))
}

fn copy(source: &Path) -> io::Result<OwnedFd> {
    detached::copy(source).map_err(with_context(&source.display().to_string()))
}

/// Adds what an error is about; its kind stays.
fn with_context(what: &str) -> impl Fn(io::Error) -> io::Error {
    let what = what.to_owned();
    move |error| io::Error::new(error.kind(), format!("{what}: {error}"))
}
