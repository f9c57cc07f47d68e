//! Mount options as written in `/etc/fstab`, as flags and data of `mount(2)`.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use nix::mount::MsFlags;
use thiserror::Error;

use super::mapping::{IdMapping, MappingError};

/// `mount(2)` copies one page of data and cuts off the rest. This is the smallest page size.
const DATA_LIMIT: usize = 4096 - 1;

/// A change of propagation, which needs a `mount(2)` call of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Propagation(pub(super) MsFlags);

/// Parsed options of one mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MountOptions {
    pub(super) flags: MsFlags,
    pub(super) propagation: Option<Propagation>,
    /// How the owners of files are shown.
    pub(super) id_mapping: Option<IdMapping>,
    /// Options only the file system understands.
    data: Vec<String>,
}

/// The two halves of an [`IdMapping`], as given in the options.
#[derive(Default)]
struct Mappings<'a> {
    users: Option<&'a str>,
    groups: Option<&'a str>,
}

/// An option that the kernel cannot have.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum OptionError {
    /// Users without groups, or the reverse.
    #[error("the options uidmap and gidmap are of use only together")]
    OneMapping,
    /// A mapping.
    #[error(transparent)]
    Mapping(#[from] MappingError),
    /// A bind mount has the data of the file system that is there already.
    #[error("a bind mount has no option {options:?}")]
    OfBind {
        /// As they were given.
        options: String,
    },
    /// A loop device.
    #[error("the option \"loop\" is not supported: mount the image on the host")]
    Loop,
    /// What containerd itself should have handled.
    #[error("the option {option:?} needs containerd's mount manager")]
    OfMountManager {
        /// The option.
        option: String,
    },
    /// No text for the kernel.
    #[error("the option {option:?} contains a zero byte")]
    ZeroByte {
        /// The option.
        option: String,
    },
}

impl MountOptions {
    /// Fails when an option cannot be given to the kernel.
    pub(super) fn parse(kind: &str, options: &[String]) -> Result<Self, OptionError> {
        let mut parsed =
            Self { flags: MsFlags::empty(), propagation: None, id_mapping: None, data: Vec::new() };
        let mut mappings = Mappings::default();
        if kind == "bind" || kind == "rbind" {
            parsed.flags |= MsFlags::MS_BIND;
        }
        if kind == "rbind" {
            parsed.flags |= MsFlags::MS_REC;
        }
        for option in options {
            if let Some(users) = option.strip_prefix("uidmap=") {
                mappings.users = Some(users);
            } else if let Some(groups) = option.strip_prefix("gidmap=") {
                mappings.groups = Some(groups);
            } else {
                parsed.add(option)?;
            }
        }
        parsed.id_mapping = match (mappings.users, mappings.groups) {
            (Some(users), Some(groups)) => Some(IdMapping::parse(users, groups)?),
            (None, None) => None,
            // Users without groups, or the reverse, would leave half of the owners unknown in the container.
            _ => return Err(OptionError::OneMapping),
        };
        if parsed.flags.contains(MsFlags::MS_BIND) && !parsed.data.is_empty() {
            return Err(OptionError::OfBind { options: parsed.data.join(",") });
        }
        Ok(parsed)
    }

    fn add(&mut self, option: &str) -> Result<(), OptionError> {
        let set = |flags: &mut MsFlags, flag| flags.insert(flag);
        let clear = |flags: &mut MsFlags, flag| flags.remove(flag);
        let (change, flag): (fn(&mut MsFlags, MsFlags), MsFlags) = match option {
            "defaults" => return Ok(()),
            "ro" => (set, MsFlags::MS_RDONLY),
            "rw" => (clear, MsFlags::MS_RDONLY),
            "bind" => (set, MsFlags::MS_BIND),
            "rbind" => (set, MsFlags::MS_BIND | MsFlags::MS_REC),
            "nosuid" => (set, MsFlags::MS_NOSUID),
            "suid" => (clear, MsFlags::MS_NOSUID),
            "nodev" => (set, MsFlags::MS_NODEV),
            "dev" => (clear, MsFlags::MS_NODEV),
            "noexec" => (set, MsFlags::MS_NOEXEC),
            "exec" => (clear, MsFlags::MS_NOEXEC),
            "sync" => (set, MsFlags::MS_SYNCHRONOUS),
            "async" => (clear, MsFlags::MS_SYNCHRONOUS),
            "dirsync" => (set, MsFlags::MS_DIRSYNC),
            "remount" => (set, MsFlags::MS_REMOUNT),
            "mand" => (set, MsFlags::MS_MANDLOCK),
            "nomand" => (clear, MsFlags::MS_MANDLOCK),
            "noatime" => (set, MsFlags::MS_NOATIME),
            "atime" => (clear, MsFlags::MS_NOATIME),
            "nodiratime" => (set, MsFlags::MS_NODIRATIME),
            "diratime" => (clear, MsFlags::MS_NODIRATIME),
            "relatime" => (set, MsFlags::MS_RELATIME),
            "norelatime" => (clear, MsFlags::MS_RELATIME),
            "strictatime" => (set, MsFlags::MS_STRICTATIME),
            "nostrictatime" => (clear, MsFlags::MS_STRICTATIME),
            "private" => return self.propagate(MsFlags::MS_PRIVATE),
            "rprivate" => return self.propagate(MsFlags::MS_PRIVATE | MsFlags::MS_REC),
            "shared" => return self.propagate(MsFlags::MS_SHARED),
            "rshared" => return self.propagate(MsFlags::MS_SHARED | MsFlags::MS_REC),
            "slave" => return self.propagate(MsFlags::MS_SLAVE),
            "rslave" => return self.propagate(MsFlags::MS_SLAVE | MsFlags::MS_REC),
            "unbindable" => return self.propagate(MsFlags::MS_UNBINDABLE),
            "runbindable" => return self.propagate(MsFlags::MS_UNBINDABLE | MsFlags::MS_REC),
            // A loop device would have to outlive this call and be found again: containerd 2.2's mount manager makes
            // them itself.
            "loop" => return Err(OptionError::Loop),
            // containerd's mount manager handles mounts with X- options; a shim never does.
            _ if option.starts_with("X-containerd.") => {
                return Err(OptionError::OfMountManager { option: option.to_owned() });
            }
            _ if option.contains('\0') => return Err(OptionError::ZeroByte { option: option.to_owned() }),
            _ => {
                self.data.push(option.to_owned());
                return Ok(());
            }
        };
        change(&mut self.flags, flag);
        Ok(())
    }

    fn propagate(&mut self, flags: MsFlags) -> Result<(), OptionError> {
        self.propagation = Some(Propagation(flags));
        Ok(())
    }

    /// The data for `mount(2)`, and the working directory that the call needs.
    ///
    /// The overlay options of images with many layers are longer than a page. Lower directories relative to their
    /// shared parent make them fit; containerd does the same for its own mounts.
    pub(super) fn data_that_fits(&self) -> io::Result<(Option<String>, Option<PathBuf>)> {
        if self.data.is_empty() {
            return Ok((None, None));
        }
        let data = self.data.join(",");
        if data.len() <= DATA_LIMIT {
            return Ok((Some(data), None));
        }
        let length = data.len();
        let Some((data, directory)) = self.with_relative_lower_directories() else {
            return Err(too_long(length));
        };
        if data.len() > DATA_LIMIT {
            return Err(too_long(data.len()));
        }
        Ok((Some(data), Some(directory)))
    }

    fn with_relative_lower_directories(&self) -> Option<(String, PathBuf)> {
        let directories: Vec<&Path> = self.lower_directories().collect();
        let shared = shared_parent(&directories)?;
        let relative: Option<Vec<&str>> =
            directories.iter().map(|directory| directory.strip_prefix(&shared).ok()?.to_str()).collect();
        Some((self.data_with(&relative?.join(":")), shared))
    }

    /// The lower layers of an overlay, uppermost first.
    pub(super) fn lower_directories(&self) -> impl Iterator<Item = &Path> {
        let lower = self.data.iter().find_map(|option| option.strip_prefix("lowerdir="));
        lower.into_iter().flat_map(|lower| lower.split(':')).map(Path::new)
    }

    /// The data for `mount(2)` with other lower directories, separated by `:`.
    pub(super) fn data_with_lower_directories(&self, lower: &str) -> io::Result<String> {
        let data = self.data_with(lower);
        if data.len() <= DATA_LIMIT { Ok(data) } else { Err(too_long(data.len())) }
    }

    fn data_with(&self, lower: &str) -> String {
        let lower = format!("lowerdir={lower}");
        let options: Vec<&str> = self
            .data
            .iter()
            .map(|option| if option.starts_with("lowerdir=") { lower.as_str() } else { option.as_str() })
            .collect();
        options.join(",")
    }
}

fn too_long(length: usize) -> io::Error {
    let reason = format!("the options have {length} bytes, the kernel takes {DATA_LIMIT}");
    io::Error::new(io::ErrorKind::InvalidInput, reason)
}

/// The deepest directory above all of `directories`, if it is more than `/`.
fn shared_parent(directories: &[&Path]) -> Option<PathBuf> {
    let mut shared = directories.first()?.parent()?;
    while !directories.iter().all(|directory| *directory != shared && directory.starts_with(shared)) {
        shared = shared.parent()?;
    }
    (shared.is_absolute() && shared != Path::new("/")).then(|| shared.to_owned())
}

/// A path of `/proc/self/mountinfo`, where blanks and backslashes are octal escapes.
pub(super) fn unescape(field: &[u8]) -> PathBuf {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        let code = tail
            .first_chunk::<3>()
            .filter(|_| *first == b'\\')
            .and_then(|digits| u8::from_str_radix(std::str::from_utf8(digits).ok()?, 8).ok());
        (bytes, rest) = match code {
            Some(byte) => ([bytes, vec![byte]].concat(), &tail[3..]),
            None => ([bytes, vec![*first]].concat(), tail),
        };
    }
    OsString::from_vec(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strings(options: &[&str]) -> Vec<String> {
        options.iter().map(|option| (*option).to_owned()).collect()
    }

    #[test]
    fn the_later_option_wins_and_data_keeps_its_order() {
        let options = ["ro", "nosuid", "rw", "index=off", "lowerdir=/a"];
        let parsed = MountOptions::parse("overlay", &strings(&options)).unwrap();
        assert_eq!(parsed.flags, MsFlags::MS_NOSUID);
        assert_eq!(parsed.data_that_fits().unwrap(), (Some("index=off,lowerdir=/a".to_owned()), None));
    }

    #[test]
    fn a_bind_mount_takes_flags_but_no_data() {
        let parsed = MountOptions::parse("bind", &strings(&["rbind", "ro", "rslave"])).unwrap();
        assert_eq!(parsed.flags, MsFlags::MS_BIND | MsFlags::MS_REC | MsFlags::MS_RDONLY);
        assert_eq!(parsed.propagation, Some(Propagation(MsFlags::MS_SLAVE | MsFlags::MS_REC)));
        assert!(
            MountOptions::parse("bind", &strings(&["size=1"]))
                .is_err_and(|error| error.to_string().contains("size=1"))
        );
        assert!(
            MountOptions::parse("ext4", &strings(&["loop"])).is_err_and(|error| error == OptionError::Loop)
        );
    }

    #[test]
    fn mappings_are_whole_and_come_in_pairs() {
        let parse = |options: &[&str]| MountOptions::parse("overlay", &strings(options));
        let parsed = parse(&["uidmap=0:1000:10,10:5000:1", "gidmap=0:2000:11", "lowerdir=/a:/b"]).unwrap();
        assert_eq!(parsed.id_mapping, IdMapping::parse("0:1000:10,10:5000:1", "0:2000:11").ok());
        assert!(parsed.id_mapping.is_some());
        assert_eq!(parsed.data_that_fits().unwrap().0.as_deref(), Some("lowerdir=/a:/b"));
        assert_eq!(parse(&["uidmap=0:1:2"]), Err(OptionError::OneMapping));
        for bad in ["", "0:1", "0:1:0", "0:1:-2", "0:1:2,", "a:b:c", "0:1:2:3", "0:4294967296:1"] {
            let error = parse(&["gidmap=0:1:2", &format!("uidmap={bad}")]).unwrap_err().to_string();
            assert!(error.contains("is not a mapping `container-id:host-id:size`"), "{bad}: {error}");
        }
    }

    #[test]
    fn long_lower_directories_become_relative_to_what_they_share() {
        let layer = |number: u32| format!("/var/lib/snapshots/{number}/{}", "x".repeat(40));
        let layers: Vec<String> = (0..70).map(layer).collect();
        let options = [format!("lowerdir={}", layers.join(":")), "upperdir=/u".into(), "workdir=/w".into()];
        let parsed = MountOptions::parse("overlay", &options).unwrap();
        let (data, directory) = parsed.data_that_fits().unwrap();
        assert_eq!(directory.as_deref(), Some(Path::new("/var/lib/snapshots")));
        assert!(data.unwrap().starts_with("lowerdir=0/xxx"));
    }

    #[test]
    fn options_that_cannot_be_made_to_fit_are_an_error_not_cut_off() {
        let parsed = MountOptions::parse("ext4", &["x".repeat(DATA_LIMIT + 1)]).unwrap();
        assert!(
            parsed.data_that_fits().unwrap_err().to_string().contains("4096 bytes, the kernel takes 4095")
        );
    }

    #[test]
    fn mountinfo_paths_are_unescaped() {
        assert_eq!(unescape(br"/a\040b\134c"), Path::new(r"/a b\c"));
        assert_eq!(unescape(br"/a\04"), Path::new(r"/a\04"));
    }
}
