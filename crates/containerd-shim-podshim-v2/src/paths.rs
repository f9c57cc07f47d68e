//! Where a pod's shim can be found: its socket, its state directory, the files in its bundles.
//!
//! Owns every path on which `start`, the server and `delete` must agree. Creates and removes nothing but the `address`
//! file.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use containerd_shim::StartOpts;
use node_state::paths::STATE_ROOT;
use node_state::replace::replace;

/// What every shim's address begins with.
const SCHEME: &str = "unix://";
/// The file in which containerd 1.6 and 1.7 look for a shim's address after a restart (CONTRACT §1.4).
const ADDRESS_FILE: &str = "address";

/// The address of a pod's shim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketAddress {
    path: PathBuf,
}

impl SocketAddress {
    /// The address of the shim of `group` under a containerd (CONTRACT §1.5). containerd 2.3 names the directory; older
    /// versions have a fixed one.
    pub fn of_pod(containerd: &StartOpts, group: &str) -> Self {
        // Go's path join makes an absolute group relative. containerd-shim lets it replace everything before it: pods
        // of two namespaces would share one shim.
        let address = containerd.socket_address(group.trim_start_matches('/'));
        Self { path: PathBuf::from(address.trim_start_matches(SCHEME)) }
    }

    /// The address of a socket at `path`, which must be absolute and name a file.
    pub fn at(path: &Path) -> Option<Self> {
        (path.is_absolute() && path.file_name().is_some()).then(|| Self { path: path.to_owned() })
    }

    /// The address that `start` wrote into a bundle, if there is one.
    pub fn in_bundle(bundle: &Path) -> Option<Self> {
        let text = fs::read_to_string(bundle.join(ADDRESS_FILE)).ok()?;
        Self::at(Path::new(text.trim().strip_prefix(SCHEME)?))
    }

    /// Writes the address into a bundle, whole or not at all.
    ///
    /// # Errors
    ///
    /// The system's error; then no file is left.
    pub fn write_to(&self, bundle: &Path) -> io::Result<()> {
        replace(&bundle.join(ADDRESS_FILE), &bundle.join(".address"), self.to_string().as_bytes())
    }

    /// The socket's path.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl fmt::Display for SocketAddress {
    /// The plain form that every containerd reads as "ttrpc, task v2" (CONTRACT §1.3).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}", self.path.display())
    }
}

/// The directory with the locks that decide which process serves the pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateDir {
    dir: PathBuf,
}

impl StateDir {
    /// The state of the pod at `address`. Its name is the socket's: that also differs between two containerds, which
    /// the grouping id does not, and is safe as a file name, which an annotation is not.
    pub fn of_pod(namespace: &str, address: &SocketAddress) -> Self {
        let name = address.path.file_name().unwrap_or_default();
        Self { dir: Path::new(STATE_ROOT).join(namespace).join(name) }
    }

    /// A state directory anywhere.
    #[cfg(test)]
    pub fn at(dir: PathBuf) -> Self {
        Self { dir }
    }

    /// The path of the lock that `start` and `delete` hold while they check the pod's shim and change it.
    pub fn bootstrap_lock(&self) -> PathBuf {
        self.dir.join("bootstrap.lock")
    }

    /// The path of the lock that the server holds as long as it lives (DESIGN §5): if it is free, the shim is dead.
    pub fn server_lock(&self) -> PathBuf {
        self.dir.join("server.lock")
    }

    /// The directory itself.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// Removes the directory, and the namespace's if this was its last pod.
    pub fn remove(&self) {
        // Fails if another process's files are in it; that process will call this too.
        if fs::remove_dir(&self.dir).is_ok()
            && let Some(namespace) = self.dir.parent()
        {
            let _ = fs::remove_dir(namespace);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn containerd(namespace: &str) -> StartOpts {
        StartOpts { address: "/c.sock".into(), namespace: namespace.into(), ..StartOpts::default() }
    }

    /// CONTRACT §1.5: `printf %s /run/containerd/containerd.sock/k8s.io/abc | sha256sum`; `ctr shim` computes the same.
    #[test]
    fn the_socket_is_where_ctr_expects_it() {
        let mut containerd =
            StartOpts { address: "/run/containerd/containerd.sock".into(), ..containerd("k8s.io") };
        let address = SocketAddress::of_pod(&containerd, "abc");
        assert_eq!(
            address.to_string(),
            "unix:///run/containerd/s/a99a1752d3a0fadfb1f869026f16760475df03a572e20f4ccea9e6c1e5470b72"
        );
        containerd.socket_dir = Some("/x".into());
        let elsewhere = SocketAddress::of_pod(&containerd, "abc");
        assert_eq!(elsewhere.path().parent(), Some(Path::new("/x")));
        assert_eq!(elsewhere.path().file_name(), address.path().file_name());
    }

    /// A group is an annotation: one that looks like a path must not make namespaces share a shim.
    #[test]
    fn an_absolute_group_stays_in_its_namespace() {
        let of = |namespace| SocketAddress::of_pod(&containerd(namespace), "/group");
        assert_ne!(of("one"), of("two"));
    }

    /// Why it is made relative here. Fails once containerd-shim joins as Go does: then this can go.
    #[test]
    fn containerd_shim_lets_an_absolute_group_leave_its_namespace() {
        let of = |namespace| containerd(namespace).socket_address("/group");
        assert_eq!(of("one"), of("two"));
    }

    #[test]
    fn a_bundle_keeps_the_address() {
        let bundle = tempfile::tempdir().unwrap();
        assert_eq!(SocketAddress::in_bundle(bundle.path()), None);
        let address = SocketAddress::of_pod(&containerd("ns"), "id");
        address.write_to(bundle.path()).unwrap();
        assert_eq!(SocketAddress::in_bundle(bundle.path()), Some(address));
        assert_eq!(fs::read_dir(bundle.path()).unwrap().count(), 1);
        fs::write(bundle.path().join(ADDRESS_FILE), "nonsense").unwrap();
        assert_eq!(SocketAddress::in_bundle(bundle.path()), None);
    }
}
