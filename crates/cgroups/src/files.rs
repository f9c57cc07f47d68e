//! Reads and writes the kernel's small text files. An absent file or field counts as empty.
//!
//! A container sees the files of its own groups: none is opened so that the caller waits (`at_once`). What podshim cannot do without is
//! kept open (`guard`).

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use nix::dir::Dir;
use nix::fcntl::{AT_FDCWD, OFlag, openat};
use nix::sys::stat::Mode;
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};
use nix::unistd::read;

/// Where every distribution mounts cgroups.
pub(super) const MOUNT_POINT: &str = "/sys/fs/cgroup";
/// The usual length limit of these files; only lists of processes and devices are longer.
const USUAL_LENGTH: usize = 4096;

/// Which of the kernel's two interfaces a hierarchy has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupVersion {
    /// A hierarchy for each controller.
    V1,
    /// One for all.
    V2,
}

/// A mounted cgroup hierarchy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CgroupMount {
    /// Where it is mounted.
    pub point: PathBuf,
    /// The group that is visible at the mount point; not `/` inside containers.
    pub(super) root: PathBuf,
    /// The interface of its files.
    pub version: CgroupVersion,
    /// Of v1: those that it has.
    pub controllers: Vec<String>,
}

impl CgroupMount {
    /// Whether it is the one hierarchy of v2.
    pub fn is_v2(&self) -> bool {
        self.version == CgroupVersion::V2
    }

    /// The directory of the group that `/proc/<pid>/cgroup` calls `path`.
    pub fn directory_of(&self, path: &str) -> PathBuf {
        let path = Path::new(path.trim_end());
        let below = path.strip_prefix(&self.root).unwrap_or_else(|_| path.strip_prefix("/").unwrap_or(path));
        self.point.join(below)
    }
}

/// The cgroup mounts of a `/proc/<pid>/mountinfo`.
pub fn cgroup_mounts(mountinfo: &str) -> Vec<CgroupMount> {
    let parse = |line: &str| {
        let (mount, file_system) = line.split_once(" - ")?;
        let mut mount = mount.split(' ').skip(3);
        let (root, point) = (mount.next()?, mount.next()?);
        let mut file_system = file_system.split(' ');
        let version = match file_system.next()? {
            "cgroup" => CgroupVersion::V1,
            "cgroup2" => CgroupVersion::V2,
            _ => return None,
        };
        let controllers = file_system.nth(1)?.split(',').map(str::to_owned).collect();
        Some(CgroupMount { point: point.into(), root: root.into(), version, controllers })
    };
    mountinfo.lines().filter_map(parse).collect()
}

/// Whether the controllers are in v2: it is mounted alone, or at the customary place. On a hybrid node they are in v1. A
/// hierarchy of v1 beside v2 in the customary place is a program's own, as some VPNs mount net_cls.
pub fn is_unified(mounts: &[CgroupMount]) -> bool {
    mounts.iter().any(|mount| mount.is_v2() && mount.point == Path::new(MOUNT_POINT))
        || mounts.iter().all(CgroupMount::is_v2)
}

/// Where every distribution mounts the hierarchies of a `/proc/<pid>/cgroup`, without a search: one directory for each
/// of v1, or v2 alone.
pub(super) fn customary_mounts(membership: &str) -> Vec<CgroupMount> {
    let mount = |point: &Path, version, controllers: &str| CgroupMount {
        point: point.into(),
        root: "/".into(),
        version,
        controllers: controllers.split(',').map(str::to_owned).collect(),
    };
    let top = Path::new(MOUNT_POINT);
    if statfs(top).is_ok_and(|file_system| file_system.filesystem_type() == CGROUP2_SUPER_MAGIC) {
        return vec![mount(top, CgroupVersion::V2, "")];
    }
    let controllers = membership.lines().filter_map(|line| line.split(':').nth(1));
    controllers.map(|controllers| mount(&top.join(controllers), CgroupVersion::V1, controllers)).collect()
}

/// The open directory of a group. CRI of containerd 2.3 has every container's statistics read each second, from thirty
/// files: a third of that time went into looking up the directory again for each file.
#[derive(Debug)]
pub(super) struct Directory(OwnedFd);

impl Directory {
    /// `None` when the group is gone.
    pub(super) fn open(path: &Path) -> Option<Self> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        openat(AT_FDCWD, path, flags, Mode::empty()).ok().map(Self)
    }

    /// Reads a whole file. Not `fs::read_to_string`: that asks for the length, which the kernel gives as 0, and starts
    /// with 32 bytes.
    pub(super) fn text(&self, file: &str) -> Option<String> {
        self.read(file).ok()
    }

    /// The same with the reason why not.
    ///
    /// # Errors
    /// `WouldBlock` if a process has a lease on it.
    pub(super) fn read(&self, file: &str) -> io::Result<String> {
        let flags = OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let file = openat(&self.0, file, flags, Mode::empty())?;
        let (mut buffer, mut bytes) = ([0; USUAL_LENGTH], Vec::new());
        loop {
            match read(&file, &mut buffer)? {
                0 => return String::from_utf8(bytes).map_err(io::Error::other),
                length => bytes.extend_from_slice(&buffer[..length]),
            }
        }
    }

    /// Reads a file that contains one number.
    pub(super) fn number(&self, file: &str) -> Option<u64> {
        limit(&self.text(file)?)
    }

    /// Reads a file of `key number` lines.
    pub(super) fn keyed(&self, file: &str) -> KeyedNumbers {
        KeyedNumbers::parse(&self.text(file).unwrap_or_default())
    }

    /// Page sizes for which the group has hugetlb files, such as `2MB`.
    pub(super) fn huge_page_sizes(&self) -> Vec<String> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        let names = Dir::openat(&self.0, ".", flags, Mode::empty());
        let mut sizes: Vec<String> = names
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(|entry| {
                // hugetlb.2MB.rsvd.max has one dot more and counts reservations.
                let (size, field) =
                    entry.file_name().to_str().ok()?.strip_prefix("hugetlb.")?.split_once('.')?;
                matches!(field, "limit_in_bytes" | "max").then(|| size.to_owned())
            })
            .collect();
        sizes.sort();
        sizes
    }
}

/// A number, or `max` for no limit.
pub(super) fn limit(text: &str) -> Option<u64> {
    match text.trim() {
        "max" => Some(u64::MAX),
        text => text.parse().ok(),
    }
}

/// A file of `key number` lines.
#[derive(Debug, Default)]
pub(super) struct KeyedNumbers(Vec<(String, u64)>);

impl KeyedNumbers {
    pub(super) fn parse(text: &str) -> Self {
        let pairs = text.lines().filter_map(|line| {
            let (key, value) = line.split_once(' ')?;
            Some((key.to_owned(), limit(value)?))
        });
        Self(pairs.collect())
    }

    pub(super) fn get(&self, key: &str) -> u64 {
        self.0.iter().find(|(name, _)| name == key).map_or(0, |(_, number)| *number)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// One device's line of an rdma file.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RdmaEntry {
    /// Device name.
    pub device: String,
    /// Handles; `u32::MAX` for no limit.
    pub hca_handles: u32,
    /// Objects; `u32::MAX` for no limit.
    pub hca_objects: u32,
}

/// Remote DMA resources; the same in both versions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RdmaStats {
    /// In use.
    pub current: Vec<RdmaEntry>,
    /// Allowed.
    pub limit: Vec<RdmaEntry>,
}

impl RdmaStats {
    pub(super) fn read(directory: &Directory) -> Option<Self> {
        let entries = |file| {
            let text = directory.text(file)?;
            Some(text.lines().filter_map(rdma_entry).collect())
        };
        // The root group has neither file.
        Some(Self { current: entries("rdma.current")?, limit: entries("rdma.max").unwrap_or_default() })
    }
}

fn rdma_entry(line: &str) -> Option<RdmaEntry> {
    let mut words = line.split_whitespace();
    let mut entry = RdmaEntry { device: words.next()?.to_owned(), ..RdmaEntry::default() };
    for (key, value) in words.filter_map(|word| word.split_once('=')) {
        let value = u32::try_from(limit(value)?).unwrap_or(u32::MAX);
        match key {
            "hca_handle" => entry.hca_handles = value,
            "hca_object" => entry.hca_objects = value,
            _ => {}
        }
    }
    Some(entry)
}
