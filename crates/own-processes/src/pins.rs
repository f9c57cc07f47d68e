//! What the containers of a pod share when no process keeps it: namespaces, files and `/dev/shm`, held by mounts.
//!
//! For the Sandbox API (CONTRACT §5). All of it is below one directory on a file system of its own: one unmount removes it,
//! also after the shim's own end by SIGKILL. Owns the making and the removal. The network namespace is CRI's: it is
//! entered for sysctls and never held, else it would outlive its removal by CNI.

use std::fs::{self, File, Permissions};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::thread;

use nix::errno::Errno;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use serde_json::Value;
use thiserror::Error;

use super::namespace::{self, is_the_nodes_network};
use super::owned;
use super::request::{NamespaceKind, sysctls};

/// Room for the pod's files, which its containers may write. hosts files of several thousand lines fit.
const FILES: &str = "mode=700,size=4m,nr_inodes=32";
/// As containerd's default for a pod.
const SHM: &str = "mode=1777,size=65536k";

/// The name of the uts namespace of the thread that opens it.
const HOSTNAME: &str = "/proc/sys/kernel/hostname";

/// Whose a resource is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sharing {
    /// The pod has its own.
    Pod,
    /// The pod uses the node's.
    Node,
}

/// Who root of a user namespace is on the node. The pod's files are root's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PodRoot {
    /// The user.
    pub uid: u32,
    /// The group.
    pub gid: u32,
}

/// What a pod's containers are to share.
#[derive(Debug, Clone, PartialEq)]
pub struct PinsRequest {
    /// CRI's network namespace; without one the pod has the node's network, and with it the node's host name.
    pub network: Option<PathBuf>,
    /// The ipc namespace and `/dev/shm`.
    pub ipc: Sharing,
    /// Of a user namespace of its own, which CRI has made for the network namespace; without one it is in the node's.
    pub root: Option<PodRoot>,
    /// Of a uts namespace of its own. Empty: the node's name at this moment.
    pub hostname: String,
    /// Names with dots, as in a pod's manifest.
    pub sysctls: Vec<(String, String)>,
    /// Names and contents.
    pub files: Vec<(&'static str, Vec<u8>)>,
}

/// Why a pod has no namespaces or files.
#[derive(Debug, Error)]
pub enum PinsError {
    /// Only sysctls of a namespace that the pod has for itself can be set.
    #[error("sysctl {0:?} is of no namespace that the pod has for itself")]
    Sysctl(String),
    /// The kernel refused a step.
    #[error("cannot {step}: {source}")]
    Step {
        /// What was attempted.
        step: String,
        /// The kernel's answer.
        source: io::Error,
    },
}

fn step(step: impl Into<String>) -> impl FnOnce(io::Error) -> PinsError {
    let step = step.into();
    move |source| PinsError::Step { step, source }
}

/// The namespaces and files of a pod, by their paths.
#[derive(Debug, Clone)]
pub struct Pins {
    place: PathBuf,
    ipc: Sharing,
    uts: Sharing,
    user: Sharing,
}

impl Pins {
    /// Makes them below `place`, an absolute path of which nothing exists yet.
    ///
    /// Blocks for a millisecond: no container exists that could make it wait.
    ///
    /// # Errors
    /// [`PinsError`]; nothing is left then.
    pub fn make(place: &Path, request: &PinsRequest) -> Result<Self, PinsError> {
        let uts = if request.network.is_some() { Sharing::Pod } else { Sharing::Node };
        let user = if request.root.is_some() { Sharing::Pod } else { Sharing::Node };
        let pins = Self { place: place.to_owned(), ipc: request.ipc, uts, user };
        let sysctls = checked(request)?;
        let made = pins.make_place(request).and_then(|()| pins.make_namespaces(request, &sysctls));
        if let Err(error) = made {
            // Only an error of the unmount would be new, and the first one says what is wrong.
            let _ = Self::remove(place);
            return Err(error);
        }
        Ok(pins)
    }

    /// The pod's ipc namespace; `None`: the node's.
    pub fn ipc(&self) -> Option<PathBuf> {
        (self.ipc == Sharing::Pod).then(|| self.place.join("ipc"))
    }

    /// The pod's uts namespace; `None`: the node's.
    pub fn uts(&self) -> Option<PathBuf> {
        (self.uts == Sharing::Pod).then(|| self.place.join("uts"))
    }

    /// The pod's user namespace; `None`: the node's.
    pub fn user(&self) -> Option<PathBuf> {
        (self.user == Sharing::Pod).then(|| self.place.join("user"))
    }

    /// What belongs on `/dev/shm`.
    pub fn shm(&self) -> PathBuf {
        match self.ipc {
            Sharing::Pod => self.place.join("shm"),
            Sharing::Node => PathBuf::from("/dev/shm"),
        }
    }

    /// One of the files of the request.
    pub fn file(&self, name: &str) -> PathBuf {
        self.place.join(name)
    }

    /// Removes everything below `place`, also what a killed shim has left. It is no error if nothing is there. Containers
    /// that still run keep their namespaces and mounts.
    ///
    /// # Errors
    /// The kernel's.
    pub fn remove(place: &Path) -> io::Result<()> {
        loop {
            match umount2(place, MntFlags::MNT_DETACH | MntFlags::UMOUNT_NOFOLLOW) {
                Ok(()) => {}
                Err(Errno::EINVAL | Errno::ENOENT) => break,
                Err(errno) => return Err(errno.into()),
            }
        }
        // Copies in other mount namespaces, made while the pod lived, see no unmount, for these mounts are private, and a volume that
        // is the node's root would keep its copy in any case. The kernel detaches all of them with the directory that they are
        // mounted on.
        match fs::remove_dir(place) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    fn make_place(&self, request: &PinsRequest) -> Result<(), PinsError> {
        let at = |path: &Path| format!("make {}", path.display());
        fs::create_dir_all(&self.place).map_err(step(at(&self.place)))?;
        tmpfs(&self.place, MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC, FILES)?;
        // Not in every other mount namespace at once. One that is made later has a copy of all this: see `remove`.
        mount_at(&self.place, None, MsFlags::MS_PRIVATE, None)?;
        for (name, content) in &request.files {
            let path = self.file(name);
            fs::write(&path, content)
                .and_then(|()| fs::set_permissions(&path, Permissions::from_mode(0o644)))
                .and_then(|()| match request.root {
                    Some(PodRoot { uid, gid }) => chown(&path, Some(uid), Some(gid)),
                    None => Ok(()),
                })
                .map_err(step(at(&path)))?;
        }
        if self.ipc == Sharing::Pod {
            let shm = self.shm();
            fs::create_dir(&shm).map_err(step(at(&shm)))?;
            tmpfs(&shm, MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC, SHM)?;
        }
        Ok(())
    }

    /// On a thread that ends with it: it enters the namespaces.
    fn make_namespaces(&self, request: &PinsRequest, sysctls: &[(String, String)]) -> Result<(), PinsError> {
        let work = || {
            let owner = self.user().map(|place| owner_of(request, &place)).transpose()?;
            let enter = |kind| match &owner {
                None => unshare(kind).map_err(io::Error::from),
                Some(owner) => owned::enter_new(owner, kind),
            };
            if let Some(uts) = self.uts() {
                enter(CloneFlags::CLONE_NEWUTS).map_err(step("make a uts namespace"))?;
                if !request.hostname.is_empty() {
                    fs::write(HOSTNAME, &request.hostname)
                        .map_err(step(format!("set the hostname {:?}", request.hostname)))?;
                }
                pin("uts", &uts)?;
            }
            if let Some(ipc) = self.ipc() {
                enter(CloneFlags::CLONE_NEWIPC).map_err(step("make an ipc namespace"))?;
                pin("ipc", &ipc)?;
            }
            if let Some(path) = &request.network {
                enter_network(path, sysctls)?;
            }
            let (of_network, of_ipc): (Vec<_>, Vec<_>) =
                sysctls.iter().partition(|(file, _)| file.starts_with("net/"));
            write(&of_network)?;
            // The kernel lets only the root of their user namespace write these.
            if let Some(root) = request.root.filter(|_| !of_ipc.is_empty()) {
                owned::become_user(root.uid).map_err(step("become the pod's root"))?;
            }
            write(&of_ipc)
        };
        thread::scope(|scope| {
            let spawned = thread::Builder::new().name("podshim-pins".to_owned()).spawn_scoped(scope, work);
            let thread = spawned.map_err(step("start a thread"))?;
            let ended = || step("make namespaces")(io::Error::other("the thread ended without a result"));
            thread.join().map_err(|_| ended())?
        })
    }
}

/// The sysctls by their files, all of namespaces that the pod has for itself.
fn checked(request: &PinsRequest) -> Result<Vec<(String, String)>, PinsError> {
    let has = |kind| match kind {
        NamespaceKind::Ipc => request.ipc == Sharing::Pod,
        NamespaceKind::Network => request.network.is_some(),
        _ => false,
    };
    let one = |(name, value): &(String, String)| {
        let entry = Value::Object([(name.clone(), Value::from(value.as_str()))].into_iter().collect());
        sysctls(&entry, has).map_err(|_| PinsError::Sysctl(name.clone()))
    };
    Ok(request.sysctls.iter().map(one).collect::<Result<Vec<_>, _>>()?.concat())
}

fn enter_network(path: &Path, sysctls: &[(String, String)]) -> Result<(), PinsError> {
    let open = || step(format!("open the network namespace {}", path.display()));
    let network = namespace::open(path).map_err(open())?;
    if sysctls.iter().any(|(file, _)| file.starts_with("net/"))
        && is_the_nodes_network(&network).map_err(open())?
    {
        let refused = io::Error::from_raw_os_error(libc::EPERM);
        return Err(step("change sysctls of the node's network namespace")(refused));
    }
    setns(network, CloneFlags::CLONE_NEWNET)
        .map_err(from(&format!("enter the network namespace {}", path.display())))
}

fn write(sysctls: &[&(String, String)]) -> Result<(), PinsError> {
    for (file, value) in sysctls {
        let path = format!("/proc/sys/{file}");
        fs::write(&path, value).map_err(step(format!("write {value:?} to {path}")))?;
    }
    Ok(())
}

/// Mounts and opens the user namespace that owns the pod's network.
fn owner_of(request: &PinsRequest, place: &Path) -> Result<OwnedFd, PinsError> {
    let find = || step("find the user namespace of the pod's network");
    let network = request.network.as_ref().ok_or(io::ErrorKind::NotFound.into()).map_err(find())?;
    let owner = namespace::open(network).and_then(|network| owned::owner(&network)).map_err(find())?;
    pin_file(&format!("/proc/thread-self/fd/{}", owner.as_raw_fd()), place)?;
    Ok(owner)
}

/// Mounts a namespace of this thread.
fn pin(kind: &str, path: &Path) -> Result<(), PinsError> {
    pin_file(&format!("/proc/thread-self/ns/{kind}"), path)
}

fn pin_file(namespace: &str, path: &Path) -> Result<(), PinsError> {
    File::create(path).map_err(step(format!("make {}", path.display())))?;
    mount_at(path, Some(Path::new(namespace)), MsFlags::MS_BIND, None)
}

fn tmpfs(path: &Path, flags: MsFlags, options: &str) -> Result<(), PinsError> {
    mount_at(path, Some(Path::new("tmpfs")), flags, Some(options))
}

fn mount_at(
    path: &Path,
    source: Option<&Path>,
    flags: MsFlags,
    options: Option<&str>,
) -> Result<(), PinsError> {
    mount(source, path, options.map(|_| "tmpfs"), flags, options)
        .map_err(from(&format!("mount {}", path.display())))
}

fn from(what: &str) -> impl FnOnce(Errno) -> PinsError {
    let failed = step(what);
    move |errno| failed(errno.into())
}

#[cfg(test)]
mod tests;
