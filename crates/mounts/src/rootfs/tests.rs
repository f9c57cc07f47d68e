//! Real mounts in a mount namespace of the test. Needs root.

use std::fs;

use test_support::run;

use super::*;

/// A directory with the layers `a` and `b`, in a private mount namespace: a failed test leaves no mount.
struct Layers(tempfile::TempDir);

impl Layers {
    fn new() -> Self {
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
        mount(None::<&str>, "/", None::<&str>, MsFlags::MS_PRIVATE | MsFlags::MS_REC, None::<&str>).unwrap();
        let directory = tempfile::tempdir().unwrap();
        // overlayfs refuses some file systems as its upper layer.
        mount(Some("tmpfs"), directory.path(), Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
        for layer in ["a", "b"] {
            fs::create_dir(directory.path().join(layer)).unwrap();
            fs::write(directory.path().join(layer).join(layer), layer).unwrap();
        }
        Self(directory)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Layers {
    fn drop(&mut self) {
        // A mount point cannot be removed.
        let _ = umount2(self.path(), MntFlags::MNT_DETACH);
    }
}

fn one(kind: &str, source: &Path, options: &[&str]) -> RootfsMount {
    let options = options.iter().map(|option| (*option).to_owned()).collect();
    RootfsMount { kind: kind.into(), source: source.to_str().unwrap().into(), options }
}

#[test]
fn a_bind_mount_can_be_read_only_and_unmounting_twice_is_fine() {
    let directory = Layers::new();
    run(async {
        let (source, target) = (directory.path().join("a"), directory.path().join("rootfs"));
        mount_rootfs(&target, &[one("bind", &source, &["rbind", "ro"])]).await.unwrap();
        assert_eq!(fs::read_to_string(target.join("a")).unwrap(), "a");
        let error = fs::write(target.join("new"), "").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ReadOnlyFilesystem);
        unmount_rootfs(&target).await.unwrap();
        unmount_rootfs(&target).await.unwrap();
        assert_eq!(fs::read_dir(&target).unwrap().count(), 0);
        fs::write(source.join("new"), "").unwrap();
        fs::remove_dir(&target).unwrap();
        unmount_rootfs(&target).await.unwrap();
    });
}

#[test]
fn an_overlay_with_more_options_than_a_page_is_mounted() {
    let directory = Layers::new();
    run(async {
        let base = directory.path();
        let names: Vec<String> =
            (0..60).map(|number| format!("layer-{number:02}-{}", "x".repeat(48))).collect();
        for name in &names {
            fs::create_dir(base.join(name)).unwrap();
            fs::write(base.join(name).join(&name[..8]), "").unwrap();
        }
        let lower: Vec<String> = names.iter().map(|name| base.join(name).display().to_string()).collect();
        let lower = format!("lowerdir={}", lower.join(":"));
        assert!(lower.len() > 4096);
        let (upper, work) = (base.join("upper"), base.join("work"));
        fs::create_dir(&upper).unwrap();
        fs::create_dir(&work).unwrap();
        let options = [lower, format!("upperdir={}", upper.display()), format!("workdir={}", work.display())];
        let options: Vec<&str> = options.iter().map(String::as_str).collect();
        let (target, before) = (base.join("rootfs"), std::env::current_dir().unwrap());
        mount_rootfs(&target, &[one("overlay", Path::new("overlay"), &options)]).await.unwrap();
        assert_eq!(fs::read_dir(&target).unwrap().count(), 60);
        fs::write(target.join("written"), "").unwrap();
        assert!(upper.join("written").exists());
        assert_eq!(std::env::current_dir().unwrap(), before);
        unmount_rootfs(&target).await.unwrap();
        assert_eq!(fs::read_dir(&target).unwrap().count(), 0);
    });
}

#[test]
fn a_failed_mount_takes_those_before_it_away() {
    let directory = Layers::new();
    run(async {
        let target = directory.path().join("rootfs");
        let missing = directory.path().join("missing");
        let mounts =
            [one("bind", &directory.path().join("a"), &["rbind"]), one("bind", &missing, &["rbind"])];
        let error = mount_rootfs(&target, &mounts).await.unwrap_err();
        assert!(error.to_string().contains("missing") && error.to_string().contains("rootfs"), "{error}");
        assert_eq!(fs::read_dir(&target).unwrap().count(), 0);
        let error = mount_rootfs(&target, &[one("bind", &missing, &["size=1"])]).await.unwrap_err();
        assert!(matches!(error, MountError::Invalid { .. }), "{error}");
    });
}

#[test]
fn stacked_nested_and_busy_mounts_are_all_unmounted() {
    let directory = Layers::new();
    run(async {
        let (a, b) = (directory.path().join("a"), directory.path().join("b"));
        let target = directory.path().join("root fs");
        fs::create_dir(b.join("inner")).unwrap();
        mount_rootfs(&target, &[one("bind", &a, &["rbind"]), one("bind", &b, &["rbind"])]).await.unwrap();
        mount_rootfs(&target.join("inner"), &[one("bind", &a, &["rbind"])]).await.unwrap();
        let busy = fs::File::open(target.join("inner/a")).unwrap();
        unmount_rootfs(&target).await.unwrap();
        assert_eq!(fs::read_dir(&target).unwrap().count(), 0);
        drop(busy);
    });
}

/// `ctr run --rootfs` mounts nothing; mounts that a hook made there are removed all the same.
#[test]
fn below_a_rootfs_that_is_no_mount_everything_is_unmounted() {
    let directory = Layers::new();
    run(async {
        let (a, target) = (directory.path().join("a"), directory.path().join("b"));
        fs::create_dir(target.join("inner")).unwrap();
        mount_rootfs(&target.join("inner"), &[one("bind", &a, &["rbind"])]).await.unwrap();
        unmount_rootfs(&target).await.unwrap();
        assert_eq!(fs::read_dir(target.join("inner")).unwrap().count(), 0);
    });
}

/// Owner and group of a file as the mount shows them.
fn owner(path: &Path) -> (u32, u32) {
    let metadata = fs::symlink_metadata(path).unwrap();
    (std::os::unix::fs::MetadataExt::uid(&metadata), std::os::unix::fs::MetadataExt::gid(&metadata))
}

const MAPPING: [&str; 2] = ["uidmap=0:100000:10,10:5000:1", "gidmap=0:200000:11"];

/// containerd 2.x mounts the rootfs of a pod with user namespaces this way: the image's files belong to the pod's root.
#[test]
fn an_overlay_with_mapped_layers_shows_mapped_owners() {
    let directory = Layers::new();
    run(async {
        let base = directory.path();
        std::os::unix::fs::chown(base.join("b/b"), Some(10), Some(10)).unwrap();
        for name in ["upper", "work"] {
            fs::create_dir(base.join(name)).unwrap();
        }
        std::os::unix::fs::chown(base.join("upper"), Some(100_000), Some(200_000)).unwrap();
        let path = |name: &str| base.join(name).display().to_string();
        let data = [
            format!("lowerdir={}:{}", path("a"), path("b")),
            format!("upperdir={}", path("upper")),
            format!("workdir={}", path("work")),
        ];
        let options: Vec<&str> = MAPPING.into_iter().chain(data.iter().map(String::as_str)).collect();
        let (target, before) = (base.join("rootfs"), mounts_below(base).unwrap());
        mount_rootfs(&target, &[one("overlay", Path::new("overlay"), &options)]).await.unwrap();
        assert_eq!(owner(&target.join("a")), (100_000, 200_000));
        assert_eq!(owner(&target.join("b")), (5000, 200_010));
        // The layers themselves are unchanged, and only the overlay is mounted.
        assert_eq!(owner(&base.join("b/b")), (10, 10));
        assert_eq!(mounts_below(base).unwrap().len(), before.len() + 1);
        fs::write(target.join("b"), "copied up").unwrap();
        assert_eq!(owner(&target.join("b")), (5000, 200_010));
        assert_eq!(owner(&base.join("upper/b")), (5000, 200_010));
        unmount_rootfs(&target).await.unwrap();
        assert_eq!(mounts_below(base).unwrap(), before);
    });
}

#[test]
fn a_mapped_overlay_has_as_many_layers_as_it_needs() {
    let directory = Layers::new();
    run(async {
        let base = directory.path();
        let name = |number: u32| base.join(format!("layer-{number:02}-{}", "x".repeat(60)));
        let lower: Vec<String> = (0..60)
            .map(|number| {
                fs::create_dir(name(number)).unwrap();
                fs::write(name(number).join(number.to_string()), "").unwrap();
                name(number).display().to_string()
            })
            .collect();
        let lower = format!("lowerdir={}", lower.join(":"));
        let options: Vec<&str> = MAPPING.into_iter().chain([lower.as_str(), "ro"]).collect();
        let target = base.join("rootfs");
        mount_rootfs(&target, &[one("overlay", Path::new("overlay"), &options)]).await.unwrap();
        assert_eq!(fs::read_dir(&target).unwrap().count(), 60);
        assert_eq!(owner(&target.join("59")), (100_000, 200_000));
        unmount_rootfs(&target).await.unwrap();
    });
}

/// A snapshot of a single layer is a bind mount; other snapshotters use file systems of their own.
#[test]
fn other_mounts_are_mapped_too() {
    let directory = Layers::new();
    run(async {
        let (source, target) = (directory.path().join("a"), directory.path().join("rootfs"));
        let options = ["rbind", "ro", MAPPING[0], MAPPING[1]];
        mount_rootfs(&target, &[one("bind", &source, &options)]).await.unwrap();
        assert_eq!(owner(&target.join("a")), (100_000, 200_000));
        let error = fs::write(target.join("new"), "").unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::ReadOnlyFilesystem);
        unmount_rootfs(&target).await.unwrap();

        mount_rootfs(&target, &[one("tmpfs", Path::new("tmpfs"), &MAPPING)]).await.unwrap();
        assert_eq!(owner(&target), (100_000, 200_000));
        unmount_rootfs(&target).await.unwrap();
        assert_eq!(owner(&target), (0, 0));
    });
}

#[test]
fn a_mapping_that_cannot_be_made_leaves_nothing() {
    let directory = Layers::new();
    run(async {
        let (source, target) = (directory.path().join("a"), directory.path().join("rootfs"));
        let overlapping = ["uidmap=0:1:10,5:100:10", "gidmap=0:1:1"];
        let error = mount_rootfs(&target, &[one("bind", &source, &overlapping)]).await.unwrap_err();
        assert!(error.to_string().contains("uidmap: "), "{error}");
        let missing = format!("lowerdir={}", directory.path().join("none").display());
        let options = [MAPPING[0], MAPPING[1], missing.as_str()];
        let error =
            mount_rootfs(&target, &[one("overlay", Path::new("overlay"), &options)]).await.unwrap_err();
        assert!(error.to_string().contains("/none: No such file"), "{error}");
        assert_eq!(mounts_below(&target).unwrap(), Vec::<PathBuf>::new());
        assert_eq!(fs::read_dir(&target).unwrap().count(), 0);
        // The process that held the namespace has ended and was reaped.
        let children = fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
        assert_eq!(children, "");
    });
}
