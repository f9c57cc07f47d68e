//! Mounts and unmounts a root file system: the calls in their order, and what is undone when one fails.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::fcntl::{OFlag, open};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use nix::sys::stat::Mode;
use thiserror::Error;
use threads::helper_thread;
use tracing::warn;

use super::idmap::{self, UserNamespace};
use super::options::{self, MountOptions, OptionError, Propagation};
use super::request::RootfsMount;
use crate::detached;

#[cfg(test)]
mod tests;
/// How often a busy mount is tried again before it is detached.
const UNMOUNT_ATTEMPTS: u32 = 3;
/// Most mounts stacked on one rootfs that are removed; a guard against a loop, far above real use.
const UNMOUNT_LAYERS: u32 = 64;

/// Why a root file system cannot be mounted or unmounted.
#[derive(Debug, Error)]
pub enum MountError {
    /// An invalid option.
    #[error("rootfs mount of type {kind:?} for {}: {reason}", target.display())]
    Invalid {
        /// File system type.
        kind: String,
        /// Where it should go.
        target: PathBuf,
        /// What is wrong.
        reason: OptionError,
    },
    /// The kernel refused.
    #[error("cannot mount {source_name:?} (type {kind:?}) on {}: {source}", target.display())]
    Mount {
        /// File system type.
        kind: String,
        /// Source of the mount.
        source_name: String,
        /// Where it should go.
        target: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// Unmounting failed.
    #[error("cannot unmount {}: {source}", target.display())]
    Unmount {
        /// Where it is.
        target: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// No thread can be started for it.
    #[error("cannot mount or unmount {}: {source}", target.display())]
    Thread {
        /// Where it should go.
        target: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
}

/// Mounts `mounts` on `target`, in their order. If one fails, those before it are unmounted.
///
/// Not cancel-safe: after a dropped future the work goes on. Run it with `spawn_local`.
///
/// # Errors
/// The first mount that fails, or an option that the kernel cannot have.
pub async fn mount_rootfs(target: &Path, mounts: &[RootfsMount]) -> Result<(), MountError> {
    if mounts.is_empty() {
        return Ok(());
    }
    let thread_error = |source| MountError::Thread { target: target.to_owned(), source };
    // The thread may change its working directory.
    let absolute = std::path::absolute(target).map_err(thread_error)?;
    let mounts = mounts.to_vec();
    let job = move || Ok(mount_all(&absolute, &mounts));
    helper_thread::run("mount", job).await.map_err(thread_error)?
}

/// Unmounts everything on `target` and below it. Succeeds when nothing is mounted there.
///
/// A mount that stays busy is detached: it goes away with its last user. Not cancel-safe, but may be repeated.
///
/// # Errors
/// Something stays mounted.
pub async fn unmount_rootfs(target: &Path) -> Result<(), MountError> {
    let thread_target = target.to_owned();
    let job = move || Ok(unmount_all(&thread_target));
    let thread_error = |source| MountError::Thread { target: target.to_owned(), source };
    helper_thread::run("unmount", job).await.map_err(thread_error)?
}

fn mount_all(target: &Path, mounts: &[RootfsMount]) -> Result<(), MountError> {
    for one in mounts {
        if let Err(error) = mount_one(target, one) {
            if let Err(unmount_error) = unmount_all(target) {
                warn!(%unmount_error, "mounting the rootfs failed, and what was mounted of it cannot be unmounted");
            }
            return Err(error);
        }
    }
    Ok(())
}

fn mount_one(target: &Path, one: &RootfsMount) -> Result<(), MountError> {
    let invalid = |reason| MountError::Invalid { kind: one.kind.clone(), target: target.to_owned(), reason };
    let failed = |source: io::Error| MountError::Mount {
        kind: one.kind.clone(),
        source_name: one.source.clone(),
        target: target.to_owned(),
        source,
    };
    let options = MountOptions::parse(&one.kind, &one.options).map_err(invalid)?;
    std::fs::create_dir_all(target).map_err(failed)?;
    apply(target, one, options).map_err(failed)
}

fn apply(target: &Path, one: &RootfsMount, options: MountOptions) -> io::Result<()> {
    let bind = options.flags.contains(MsFlags::MS_BIND);
    match options.id_mapping.as_ref().map(UserNamespace::new).transpose()? {
        None => attach(target, one, &options)?,
        Some(namespace) if bind => cover(target, namespace.mapped(Path::new(&one.source))?)?,
        Some(namespace) if one.kind == "overlay" => {
            idmap::mount_overlay(target, one, &options, &namespace)?;
        }
        // Any other file system is mounted as it is, and its mapped copy is then mounted over it.
        Some(namespace) => {
            attach(target, one, &options)?;
            cover(target, namespace.mapped(target)?)?;
        }
    }
    let rest = options.flags - (MsFlags::MS_BIND | MsFlags::MS_REC);
    if bind && !rest.is_empty() {
        let flags = rest | MsFlags::MS_BIND | MsFlags::MS_REMOUNT;
        mount(None::<&str>, target, None::<&str>, flags, None::<&str>)?;
    }
    if let Some(Propagation(flags)) = options.propagation {
        mount(None::<&str>, target, None::<&str>, flags, None::<&str>)?;
    }
    Ok(())
}

/// Calls `mount(2)` to attach the file system, or the bind's source, to the target.
fn attach(target: &Path, one: &RootfsMount, options: &MountOptions) -> io::Result<()> {
    let bind = options.flags.contains(MsFlags::MS_BIND);
    let (data, directory) = options.data_that_fits()?;
    if let Some(directory) = directory {
        // Gives this thread a working directory of its own, which ends with the thread. No other thread is moved.
        unshare(CloneFlags::CLONE_FS)?;
        std::env::set_current_dir(directory)?;
    }
    let kind = (!bind).then_some(one.kind.as_str());
    // A bind mount ignores every flag but MS_REC; the others take a remount.
    let first = if bind { options.flags & (MsFlags::MS_BIND | MsFlags::MS_REC) } else { options.flags };
    Ok(mount(Some(one.source.as_str()), target, kind, first, data.as_deref())?)
}

/// Attaches a detached mount on top of the target.
fn cover(target: &Path, tree: OwnedFd) -> io::Result<()> {
    let place = open(target, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty())?;
    detached::attach(&tree, place, Path::new(""))
}

fn unmount_all(target: &Path) -> Result<(), MountError> {
    // The mount table grows with the node's pods, so it is read only if this leaves something: a mount below keeps the
    // target busy.
    if remove_layers(target, |target| umount2(target, MntFlags::UMOUNT_NOFOLLOW))
        .is_ok_and(|removed| removed > 0)
    {
        return Ok(());
    }
    let failed = |target: PathBuf| move |source| MountError::Unmount { target, source };
    // First what is mounted below, deepest first.
    for below in mounts_below(target).map_err(failed(target.to_owned()))? {
        remove_layers(&below, unmount_once).map_err(failed(below.clone()))?;
    }
    remove_layers(target, unmount_once).map_err(failed(target.to_owned()))?;
    Ok(())
}

/// Removes all mounts stacked on exactly `target`, and returns how many there were.
fn remove_layers(target: &Path, remove_one: impl Fn(&Path) -> nix::Result<()>) -> io::Result<u32> {
    for removed in 0..UNMOUNT_LAYERS {
        match remove_one(target) {
            Ok(()) => {}
            // EINVAL: not a mount point (any more). ENOENT: the directory is gone, as after `delete`.
            Err(nix::Error::EINVAL | nix::Error::ENOENT) => return Ok(removed),
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::other("too many mounts on top of each other"))
}

fn unmount_once(target: &Path) -> nix::Result<()> {
    for _ in 0..UNMOUNT_ATTEMPTS {
        match umount2(target, MntFlags::UMOUNT_NOFOLLOW) {
            Err(nix::Error::EBUSY) => std::thread::yield_now(),
            result => return result,
        }
    }
    umount2(target, MntFlags::UMOUNT_NOFOLLOW | MntFlags::MNT_DETACH)
}

/// Mount points strictly below `target`, deepest first.
fn mounts_below(target: &Path) -> io::Result<Vec<PathBuf>> {
    // The table contains resolved paths. It is this thread's own: a helper thread may be in another mount namespace.
    let target = match target.canonicalize() {
        Ok(target) => target,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let table = std::fs::read("/proc/thread-self/mountinfo")?;
    let mut points: Vec<PathBuf> = table
        .split(|byte| *byte == b'\n')
        .filter_map(|line| line.split(|byte| *byte == b' ').nth(4))
        .map(options::unescape)
        .filter(|point| point.starts_with(&target) && *point != target)
        .collect();
    points.sort();
    points.dedup();
    points.reverse();
    Ok(points)
}
