use std::os::unix::fs::MetadataExt;

use test_support::UserNamespace;

use super::*;

fn request() -> PinsRequest {
    PinsRequest {
        network: Some("/proc/self/ns/net".into()),
        ipc: Sharing::Pod,
        root: None,
        hostname: "shop-0".to_owned(),
        sysctls: vec![("kernel.shm_rmid_forced".to_owned(), "1".to_owned())],
        files: vec![("hosts", b"127.0.0.1 localhost\n".to_vec())],
    }
}

fn place() -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let place = directory.path().join("namespace/pod/sandbox");
    (directory, place)
}

fn inode(path: &Path) -> u64 {
    fs::metadata(path).unwrap().ino()
}

/// Enters a pinned namespace on a thread of its own and looks.
fn within<T: Send>(path: &Path, kind: CloneFlags, inspect: impl FnOnce() -> T + Send) -> T {
    let file = File::open(path).unwrap();
    thread::scope(|scope| {
        let thread = scope.spawn(move || {
            setns(file, kind).unwrap();
            inspect()
        });
        thread.join().unwrap()
    })
}

#[test]
fn a_pod_has_namespaces_and_files_of_its_own_without_a_process() {
    let (_directory, place) = place();
    let pins = Pins::make(&place, &request()).unwrap();
    let (ipc, uts) = (pins.ipc().unwrap(), pins.uts().unwrap());
    assert_ne!(inode(&ipc), inode(Path::new("/proc/self/ns/ipc")));
    let hostname = || fs::read_to_string(HOSTNAME).unwrap().trim().to_owned();
    assert_ne!(hostname(), "shop-0");
    assert_eq!(within(&uts, CloneFlags::CLONE_NEWUTS, hostname), "shop-0");
    let forced = || fs::read_to_string("/proc/sys/kernel/shm_rmid_forced").unwrap();
    assert_eq!(within(&ipc, CloneFlags::CLONE_NEWIPC, forced).trim(), "1");
    assert_eq!(fs::read_to_string(pins.file("hosts")).unwrap(), "127.0.0.1 localhost\n");
    assert_eq!(fs::metadata(pins.shm()).unwrap().mode() & 0o7777, 0o1777);
    assert_eq!(fs::metadata(&place).unwrap().mode() & 0o777, 0o700);
    // Containers may write the files: only their own pod runs out of room.
    assert!(fs::write(pins.file("large"), vec![0; 5 << 20]).is_err());
    Pins::remove(&place).unwrap();
    assert!(!place.exists());
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(place.to_str().unwrap()), "a mount is left");
    // `delete` comes after the shim's own end too.
    Pins::remove(&place).unwrap();
}

#[test]
fn the_nodes_namespaces_are_not_replaced() {
    let (_directory, place) = place();
    let request = PinsRequest {
        network: None,
        ipc: Sharing::Node,
        hostname: String::new(),
        sysctls: vec![],
        ..request()
    };
    let pins = Pins::make(&place, &request).unwrap();
    assert_eq!((pins.ipc(), pins.uts(), pins.shm()), (None, None, PathBuf::from("/dev/shm")));
    assert_eq!(fs::read_dir(&place).unwrap().count(), 1);
    Pins::remove(&place).unwrap();
}

#[test]
fn a_sysctl_of_the_node_is_refused_and_nothing_is_left() {
    for (name, network, ipc) in [
        ("vm.swappiness", Some("/proc/self/ns/net"), Sharing::Pod),
        ("net.ipv4.ip_forward", None, Sharing::Pod),
        ("net.ipv4.ip_forward", Some("/proc/self/ns/net"), Sharing::Pod),
        ("kernel.shmmax", Some("/proc/self/ns/net"), Sharing::Node),
        ("net/../kernel.panic", Some("/proc/self/ns/net"), Sharing::Pod),
    ] {
        let (_directory, place) = place();
        let sysctls = vec![(name.to_owned(), "1".to_owned())];
        let request = PinsRequest { network: network.map(PathBuf::from), ipc, sysctls, ..request() };
        let error = Pins::make(&place, &request).unwrap_err().to_string();
        assert!(error.contains(name) || error.contains("node's network"), "{error}");
        assert!(!place.exists());
    }
}

#[test]
fn a_missing_network_namespace_leaves_nothing() {
    let (_directory, place) = place();
    let request = PinsRequest { network: Some("/run/netns/none".into()), ..request() };
    let error = Pins::make(&place, &request).unwrap_err().to_string();
    assert!(error.contains("/run/netns/none"), "{error}");
    assert!(!place.exists());
}

/// A stack of mounts, as after a failed removal: all go.
#[test]
fn everything_that_a_killed_shim_has_left_is_removed() {
    let (_directory, place) = place();
    Pins::make(&place, &request()).unwrap();
    let again = PinsRequest { network: None, ..request() };
    Pins::make(&place, &again).unwrap();
    Pins::remove(&place).unwrap();
    assert!(!place.exists());
}

/// What a container may do in a namespace the kernel asks of the user namespace that owns it.
#[test]
fn the_namespaces_of_a_pod_with_a_user_namespace_belong_to_it() {
    let owner = UserNamespace::with(&["--net"]);
    let (_directory, place) = place();
    let request = PinsRequest {
        network: Some(owner.namespace("net")),
        root: Some(PodRoot { uid: 200_000, gid: 200_001 }),
        ..request()
    };
    let children = || fs::read_to_string("/proc/thread-self/children").unwrap();
    let before = children();
    let pins = Pins::make(&place, &request).unwrap();
    assert_eq!(children(), before, "no child is left");
    let user = pins.user().unwrap();
    assert_eq!(inode(&user), inode(&owner.namespace("user")));
    let (ipc, uts) = (pins.ipc().unwrap(), pins.uts().unwrap());
    for path in [&ipc, &uts] {
        let found = owned::owner(&File::open(path).unwrap()).unwrap();
        assert_eq!(File::from(found).metadata().unwrap().ino(), inode(&user), "{}", path.display());
    }
    let hostname = || fs::read_to_string(HOSTNAME).unwrap().trim().to_owned();
    assert_eq!(within(&uts, CloneFlags::CLONE_NEWUTS, hostname), "shop-0");
    let forced = || fs::read_to_string("/proc/sys/kernel/shm_rmid_forced").unwrap();
    assert_eq!(within(&ipc, CloneFlags::CLONE_NEWIPC, forced).trim(), "1");
    // SAFETY: asks a number of this process.
    assert_eq!(unsafe { libc::prctl(libc::PR_GET_DUMPABLE) }, 1, "as it was");
    let hosts = fs::metadata(pins.file("hosts")).unwrap();
    assert_eq!((hosts.uid(), hosts.gid()), (200_000, 200_001), "its root may write the pod's files");
    Pins::remove(&place).unwrap();
    assert!(!place.exists());
}

/// The node's user namespace would be no protection at all.
#[test]
fn a_network_of_the_nodes_user_namespace_is_none_of_a_pod_with_its_own() {
    let (_directory, place) = place();
    let request = PinsRequest { root: Some(PodRoot { uid: 1000, gid: 1000 }), ..request() };
    let error = Pins::make(&place, &request).unwrap_err().to_string();
    assert!(error.contains("it is the node's own"), "{error}");
    assert!(!place.exists());
}

/// A mount namespace that was made while the pod lived has copies of its mounts: of another pod's container, or of a service of the
/// node. None of them may keep the pod's namespaces and its /dev/shm.
#[test]
fn no_other_mount_namespace_keeps_what_is_removed() {
    let (directory, place) = place();
    let pins = Pins::make(&place, &request()).unwrap();
    // As a container that mounts the node's root.
    let volume = directory.path().join("volume");
    fs::create_dir(&volume).unwrap();
    let with_volume = |how: &str| {
        let volume = volume.display();
        format!("mount --rbind / {volume} && mount --make-{how} {volume} && echo && exec sleep 60")
    };
    let plain = "echo; exec sleep 60".to_owned();
    let others = [
        (vec!["--mount", "--propagation", "unchanged"], plain.clone()),
        (vec!["--mount", "--propagation", "slave"], plain.clone()),
        (vec!["--mount", "--propagation", "private"], plain.clone()),
        (vec!["--user", "--map-root-user", "--mount"], plain),
        (vec!["--mount"], with_volume("rprivate")),
        (vec!["--mount", "--propagation", "slave"], with_volume("rslave")),
    ]
    .map(|(options, script)| OtherMounts::made_by(&options, &script));
    let (ipc, name) = (pins.ipc().unwrap(), place.to_str().unwrap());
    for (number, other) in others.iter().enumerate() {
        assert!(other.read("mountinfo").contains(ipc.to_str().unwrap()), "{number} has no copy");
    }
    Pins::remove(&place).unwrap();
    for (number, other) in others.iter().enumerate() {
        let mounts = other.read("mountinfo");
        let left: Vec<_> = mounts.lines().filter(|line| line.contains(name)).collect();
        assert!(left.is_empty(), "{number} keeps {left:#?}");
    }
}

/// A process in a mount namespace of its own.
struct OtherMounts(std::process::Child);

impl OtherMounts {
    #[expect(clippy::disallowed_methods, reason = "the test is the only waiter of its children")]
    fn made_by(options: &[&str], script: &str) -> Self {
        let mut command = std::process::Command::new("unshare");
        command.args(options).args(["sh", "-c", script]).stdout(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        Self(child)
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(format!("/proc/{}/{file}", self.0.id())).unwrap()
    }
}

impl Drop for OtherMounts {
    #[expect(clippy::disallowed_methods, reason = "the test is the only waiter of its children")]
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
