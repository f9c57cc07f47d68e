//! A file system below a directory: every path is resolved inside it, as the kernel does for a chroot.
//!
//! Owns every access of `install` and `uninstall` to files. The directory may be a node's root as a container sees it, and
//! programs on that node may have made any symlink in it. Absolute targets and `..` begin again at the directory, so no
//! link leads to a file of the container (openat2(2), RESOLVE_IN_ROOT). No path is checked first and opened later.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, OpenHow, ResolveFlag, openat, openat2, readlinkat, renameat};
use nix::sys::stat::{Mode, fchmod, fstat, mkdirat};
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchown, symlinkat, unlinkat};

/// The kernel's own limit.
const MAX_LINKS: usize = 40;
/// Within a root the kernel does not resolve `..` while any process of the machine renames or mounts something (EAGAIN). As many
/// tries as of a `file:` gate.
const TRIES: usize = 1000;

/// The directory that is `/` for all paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Root {
    path: PathBuf,
}

/// A path that stays open: as another part of this process can reach it.
#[derive(Debug)]
pub struct Reached {
    file: OwnedFd,
}

impl Reached {
    /// The path for the kernel, as long as this value lives.
    pub fn path(&self) -> PathBuf {
        format!("/proc/self/fd/{}", self.file.as_raw_fd()).into()
    }
}

/// Who may do what with a file: mode, owner and group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rights {
    mode: Mode,
    owner: Option<(Uid, Gid)>,
}

impl Root {
    /// The root of the file system below `path`.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Whether this is the file system that this process itself runs in.
    pub fn is_own(&self) -> bool {
        self.path == Path::new("/")
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.path
    }

    /// A path as people find it from here. For messages: opening it may follow links out of the root.
    pub fn shown(&self, path: &Path) -> PathBuf {
        self.path.join(relative(path))
    }

    /// The content of a regular file.
    ///
    /// # Errors
    /// The system's error; a directory, a pipe or a device is an error too.
    pub fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        // Without O_NONBLOCK a pipe would keep the command waiting for a writer.
        let file = File::from(self.open(path, OFlag::O_RDONLY | OFlag::O_NONBLOCK)?);
        if !file.metadata()?.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        let mut content = Vec::new();
        { file }.read_to_end(&mut content)?;
        Ok(content)
    }

    /// The target of a symlink; `None` if the path is no symlink, or does not exist.
    ///
    /// # Errors
    /// The system's error.
    pub fn read_link(&self, path: &Path) -> io::Result<Option<PathBuf>> {
        let (directory, name) = match self.parent(path) {
            Ok(found) => found,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        match readlinkat(&directory, name) {
            Ok(target) => Ok(Some(target.into())),
            Err(Errno::EINVAL | Errno::ENOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The names in a directory.
    ///
    /// # Errors
    /// The system's error.
    pub fn list(&self, path: &Path) -> io::Result<Vec<OsString>> {
        let directory = self.reach(path)?;
        fs::read_dir(directory.path())?.map(|entry| entry.map(|entry| entry.file_name())).collect()
    }

    /// Whether something is at a path.
    pub fn exists(&self, path: &Path) -> bool {
        self.reach(path).is_ok()
    }

    /// When the content of a path, or its place, last changed, in nanoseconds; `None` if nothing is there.
    pub fn changed_at(&self, path: &Path) -> Option<i128> {
        let found = fstat(self.open(path, OFlag::O_PATH).ok()?).ok()?;
        Some(i128::from(found.st_ctime) * 1_000_000_000 + i128::from(found.st_ctime_nsec))
    }

    /// Opens a path, so that code that knows nothing of this root can use it.
    ///
    /// # Errors
    /// The system's error.
    pub fn reach(&self, path: &Path) -> io::Result<Reached> {
        Ok(Reached { file: self.open(path, OFlag::O_PATH)? })
    }

    /// The path behind all symlinks at the end of `path`, so that a file can be replaced and not the link to it.
    ///
    /// # Errors
    /// The system's error, or too many links.
    pub fn behind_links(&self, path: &Path) -> io::Result<PathBuf> {
        let mut path = path.to_owned();
        for _ in 0..MAX_LINKS {
            match self.read_link(&path)? {
                // An absolute target replaces the whole path.
                Some(target) => path = path.parent().unwrap_or(Path::new("/")).join(target),
                None => return Ok(path),
            }
        }
        Err(Errno::ELOOP.into())
    }

    /// Puts a file with this content in the place of what is at `path`, in one step. It has the rights of the file at
    /// `like`, or `mode` if there is none.
    ///
    /// # Errors
    /// The system's error; nothing has changed then.
    pub fn put_file(&self, path: &Path, content: &[u8], like: &Path, mode: u32) -> io::Result<()> {
        let rights =
            self.rights(like).unwrap_or(Rights { mode: Mode::from_bits_truncate(mode), owner: None });
        self.put_file_back(path, content, rights)
    }

    /// Puts a file with this content and these rights in the place of what is at `path`, in one step.
    ///
    /// # Errors
    /// The system's error; nothing has changed then.
    pub fn put_file_back(&self, path: &Path, content: &[u8], rights: Rights) -> io::Result<()> {
        self.put(path, |directory, name| write_new(directory, name, content, rights))
    }

    /// Puts a symlink to `target` in the place of what is at `path`, in one step.
    ///
    /// # Errors
    /// The system's error; nothing has changed then.
    pub fn put_link(&self, path: &Path, target: &Path) -> io::Result<()> {
        self.put(path, |directory, name| Ok(symlinkat(target, directory, name)?))
    }

    fn put(&self, path: &Path, make: impl FnOnce(&OwnedFd, &OsStr) -> io::Result<()>) -> io::Result<()> {
        self.create_directories(path.parent().unwrap_or(Path::new("/")))?;
        let (directory, name) = self.parent(path)?;
        let new = OsString::from(format!(".{}.podshim-new", name.to_string_lossy()));
        match unlinkat(&directory, new.as_os_str(), UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let made = make(&directory, &new);
        let made = made.and_then(|()| Ok(renameat(&directory, new.as_os_str(), &directory, name)?));
        if made.is_err() {
            // Report only the first error.
            let _ = unlinkat(&directory, new.as_os_str(), UnlinkatFlags::NoRemoveDir);
        }
        made
    }

    /// Removes a file or a symlink, if there is one.
    ///
    /// # Errors
    /// The system's error.
    pub fn remove(&self, path: &Path) -> io::Result<()> {
        match self
            .parent(path)
            .and_then(|(directory, name)| Ok(unlinkat(&directory, name, UnlinkatFlags::NoRemoveDir)?))
        {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Removes a directory if it is empty.
    pub fn remove_empty(&self, path: &Path) {
        if let Ok((directory, name)) = self.parent(path) {
            let _ = unlinkat(&directory, name, UnlinkatFlags::RemoveDir);
        }
    }

    /// The rights of the file at a path, behind symlinks; `None` if there is none.
    pub fn rights(&self, path: &Path) -> Option<Rights> {
        let found = fstat(self.open(path, OFlag::O_PATH).ok()?).ok()?;
        let owner = (Uid::from_raw(found.st_uid), Gid::from_raw(found.st_gid));
        Some(Rights { mode: Mode::from_bits_truncate(found.st_mode), owner: Some(owner) })
    }

    fn create_directories(&self, path: &Path) -> io::Result<()> {
        fs::create_dir_all(&self.path)?;
        let mut made = PathBuf::from("/");
        for part in path.components().filter(|part| *part != Component::RootDir) {
            made.push(part);
            match self.open(&made, OFlag::O_PATH | OFlag::O_DIRECTORY) {
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    let (directory, name) = self.parent(&made)?;
                    mkdirat(&directory, name, Mode::from_bits_truncate(0o755))?;
                }
                opened => drop(opened?),
            }
        }
        Ok(())
    }

    /// The open directory that has the path's last part, and that part. Only the kernel's calls that follow no link at
    /// the end may take the part.
    fn parent<'a>(&self, path: &'a Path) -> io::Result<(OwnedFd, &'a OsStr)> {
        let name = path.file_name().ok_or(Errno::EISDIR)?;
        let directory = path.parent().unwrap_or(Path::new("/"));
        Ok((self.open(directory, OFlag::O_PATH | OFlag::O_DIRECTORY)?, name))
    }

    fn open(&self, path: &Path, flags: OFlag) -> io::Result<OwnedFd> {
        let flags = flags | OFlag::O_CLOEXEC;
        if self.is_own() {
            // Kernels before 5.6, which have no openat2, need none here.
            return Ok(openat(AT_FDCWD, &Path::new("/").join(path), flags, Mode::empty())?);
        }
        let directory = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let root = openat(AT_FDCWD, &self.path, directory, Mode::empty())?;
        let within = ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS;
        let how = OpenHow::new().flags(flags).resolve(within);
        let mut opened = Err(Errno::EAGAIN);
        for _ in 0..TRIES {
            opened = openat2(&root, relative(path), how);
            if !matches!(opened, Err(Errno::EAGAIN)) {
                break;
            }
        }
        opened.map_err(|error| match error {
            Errno::ENOSYS => io::Error::other(
                "this kernel cannot resolve paths within a directory (openat2, Linux 5.6): install on the node itself",
            ),
            error => error.into(),
        })
    }
}

fn relative(path: &Path) -> &Path {
    match path.strip_prefix("/") {
        Ok(rest) if rest.as_os_str().is_empty() => Path::new("."),
        Ok(rest) => rest,
        Err(_) => path,
    }
}

/// Writes a file that does not exist yet.
fn write_new(directory: &OwnedFd, name: &OsStr, content: &[u8], rights: Rights) -> io::Result<()> {
    let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mut file = File::from(openat(directory, name, flags, Mode::S_IRUSR | Mode::S_IWUSR)?);
    file.write_all(content)?;
    if let Some((user, group)) = rights.owner {
        fchown(&file, Some(user), Some(group))?;
    }
    // After the owner: changing that clears some bits of the mode.
    fchmod(&file, rights.mode)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A root beside a directory that no path of the root may reach.
    struct Trap {
        directory: tempfile::TempDir,
    }

    impl Trap {
        fn new() -> Self {
            let directory = tempfile::tempdir().unwrap();
            for name in ["root/etc", "outside"] {
                fs::create_dir_all(directory.path().join(name)).unwrap();
            }
            fs::write(directory.path().join("outside/file"), "outside").unwrap();
            Self { directory }
        }

        fn at(&self, path: &str) -> PathBuf {
            self.directory.path().join(path)
        }

        fn root(&self) -> Root {
            Root::new(self.at("root"))
        }

        fn outside(&self) -> Vec<(OsString, Vec<u8>)> {
            let entries = fs::read_dir(self.at("outside")).unwrap().map(|entry| entry.unwrap());
            entries.map(|entry| (entry.file_name(), fs::read(entry.path()).unwrap())).collect()
        }
    }

    /// A link that is absolute, one with more `..` than there are directories, and one in the middle of a path.
    #[test]
    fn no_link_leads_out() {
        let trap = Trap::new();
        let (root, before) = (trap.root(), trap.outside());
        let escape = "../".repeat(30) + trap.at("outside").strip_prefix("/").unwrap().to_str().unwrap();
        for (name, target) in [("absolute", trap.at("outside")), ("up", escape.into())] {
            let path = Path::new("/etc").join(name);
            symlink(&target, trap.at("root/etc").join(name)).unwrap();
            assert_eq!(root.read(&path.join("file")).unwrap_err().kind(), ErrorKind::NotFound, "{name}");
            assert!(!root.exists(&path.join("file")), "{name}");
            assert!(root.list(&path).is_err(), "{name}");
            // The target does not exist below the root, so nothing can be put behind the link.
            assert!(root.put_file(&path.join("new"), b"x", &path, 0o644).is_err(), "{name}");
            assert!(root.put_link(&path.join("new"), Path::new("/x")).is_err(), "{name}");
            root.remove(&path.join("file")).unwrap();
            root.remove_empty(&path);
            assert_eq!(trap.outside(), before, "{name}");
        }
        // A file at the end of the path.
        symlink(trap.at("outside/file"), trap.at("root/etc/config.toml")).unwrap();
        let config = Path::new("/etc/config.toml");
        assert_eq!(root.read(config).unwrap_err().kind(), ErrorKind::NotFound);
        let behind = root.behind_links(config).unwrap();
        root.put_file(&behind, b"inside", config, 0o644).unwrap();
        assert_eq!(trap.outside(), before);
        assert_eq!(root.read(config).unwrap(), b"inside");
        assert_eq!(fs::read(root.shown(&behind)).unwrap(), b"inside", "where the target is below the root");
    }

    /// The temporary name may be taken by a link: it is removed, not followed.
    #[test]
    fn a_link_at_the_temporary_name_is_replaced() {
        let trap = Trap::new();
        let before = trap.outside();
        symlink(trap.at("outside/file"), trap.at("root/etc/.a.podshim-new")).unwrap();
        trap.root().put_file(Path::new("/etc/a"), b"text", Path::new("/etc/a"), 0o600).unwrap();
        assert_eq!(fs::read(trap.at("root/etc/a")).unwrap(), b"text");
        assert_eq!(trap.outside(), before);
        assert_eq!(fs::read_dir(trap.at("root/etc")).unwrap().count(), 1);
    }

    /// Links that stay in the root work as they do on the node.
    #[test]
    fn links_within_the_root_are_followed_as_on_the_node() {
        let trap = Trap::new();
        fs::create_dir(trap.at("root/etc/real")).unwrap();
        symlink("/etc/real", trap.at("root/etc/absolute")).unwrap();
        symlink("../../../etc/absolute", trap.at("root/etc/chain")).unwrap();
        let root = trap.root();
        root.put_file(Path::new("/etc/chain/new/file"), b"1", Path::new("/none"), 0o755).unwrap();
        assert_eq!(fs::read(trap.at("root/etc/real/new/file")).unwrap(), b"1");
        assert_eq!(root.list(Path::new("/etc/chain")).unwrap(), ["new"]);
        assert_eq!(fs::read_dir(root.reach(Path::new("/etc/chain")).unwrap().path()).unwrap().count(), 1);
    }

    #[test]
    fn what_is_no_file_is_an_error() {
        let trap = Trap::new();
        let root = trap.root();
        nix::unistd::mkfifo(&trap.at("root/etc/pipe"), Mode::S_IRWXU).unwrap();
        symlink("loop", trap.at("root/etc/loop")).unwrap();
        for name in ["pipe", "loop", "."] {
            assert!(root.read(&Path::new("/etc").join(name)).is_err(), "{name}");
        }
        assert!(root.behind_links(Path::new("/etc/loop")).is_err());
        assert_eq!(root.read_link(Path::new("/none/none")).unwrap(), None);
        assert_eq!(root.shown(Path::new("/etc/x")), trap.at("root/etc/x"));
    }
}
