//! The files that installing podshim on a node writes, their content, and what uninstalling removes of them.
//!
//! Owns the list of changes. Computing it writes nothing; [`files`] makes the changes. It starts, restarts and signals
//! no process: the node's administrator does that, and the command prints the next steps.

pub mod containerd;
pub mod diff;
pub mod files;

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use self::containerd::{ConfigError, FileVersion};
use self::files::{Change, Content, FileError};

const SHIM: &str = "containerd-shim-podshim-v2";
const COMMAND: &str = "podshim";
/// The directory of the programs as the files in `dist` name it.
const DIST_BIN_DIR: &str = "/usr/local/bin";
/// Programs in this directory belong to a package, which removes them itself.
const PACKAGE_BIN_DIR: &str = "/usr/bin";
const RUNTIME_CLASS: &str = include_str!("../../../dist/runtimeclass.yaml");
const NODE_FILE: &str = include_str!("../../../dist/config.toml");
const DRAIN_UNIT: &str = include_str!("../../../dist/systemd/podshim-drain.service");
const SCOPE_DROP_IN: &str = include_str!("../../../dist/systemd/10-podshim.conf");
/// The directory of an administrator's units, and of the links that enable units at boot.
const UNITS: &str = "/etc/systemd/system";
/// The directory of packages' units.
const PACKAGE_UNITS: &str = "/usr/lib/systemd/system";
const UNIT: &str = "podshim-drain.service";

/// Where everything goes. Paths are as on the running node; `root` is put before them.
#[derive(Clone, Debug)]
pub struct Layout {
    /// `/`, or the root of a file system that is made for another machine.
    pub root: PathBuf,
    /// The directory of the programs, in the PATH of containerd.
    pub bin_dir: PathBuf,
    /// containerd's main configuration file.
    pub config: PathBuf,
}

/// The default of containerd's configuration file.
pub const CONFIG: &str = "/etc/containerd/config.toml";

/// A text for shells or man: its place below the directory `share`, and its content.
pub type ReferenceText = (PathBuf, String);

/// Where the programs are now.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The shim.
    pub shim: PathBuf,
    /// This command.
    pub command: PathBuf,
}

/// Why nothing can be installed or removed.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// containerd's configuration cannot be changed by a program.
    #[error("{path}: {source}")]
    Config {
        /// The file.
        path: PathBuf,
        /// Why not.
        source: ConfigError,
    },
    /// A file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
}

impl Layout {
    /// A path as this process reaches it.
    pub fn at(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// The file that containerd 2.x imports.
    pub fn drop_in(&self) -> PathBuf {
        self.config.parent().unwrap_or(Path::new("/")).join("conf.d/podshim.toml")
    }

    /// containerd's configuration as it was before the first change.
    pub fn backup(&self) -> PathBuf {
        let mut name = self.config.clone().into_os_string();
        name.push(".before-podshim");
        name.into()
    }

    /// The shim's program.
    pub fn shim(&self) -> PathBuf {
        self.bin_dir.join(SHIM)
    }

    /// The RuntimeClass, for `kubectl apply`.
    pub fn runtime_class(&self) -> PathBuf {
        self.share().join("runtimeclass.yaml")
    }

    fn share(&self) -> PathBuf {
        self.bin_dir.parent().unwrap_or(Path::new("/")).join("share/podshim")
    }

    /// A text of `dist` with this layout's directory of programs.
    fn adapted(&self, text: &str) -> String {
        text.replace(DIST_BIN_DIR, &self.bin_dir.to_string_lossy())
    }

    /// All files that are neither programs nor containerd's configuration, with their texts.
    fn texts(&self, reference: Vec<ReferenceText>) -> Vec<(PathBuf, String)> {
        let share = self.share();
        let texts = vec![
            (self.runtime_class(), RUNTIME_CLASS.to_owned()),
            (share.join("config.toml"), NODE_FILE.to_owned()),
            (share.join("containerd-version-2.toml"), self.adapted(containerd::VERSION_2)),
            (share.join("containerd-version-3.toml"), self.adapted(containerd::VERSION_3)),
            (self.unit(), self.adapted(DRAIN_UNIT)),
            // systemd applies this to all scopes with CRI's prefix, and to no others.
            (self.units().join("cri-containerd-.scope.d/10-podshim.conf"), SCOPE_DROP_IN.to_owned()),
        ];
        let reference = reference.into_iter().map(|(path, text)| (share.with_file_name(path), text));
        texts.into_iter().chain(reference).collect()
    }

    fn is_of_package(&self) -> bool {
        self.bin_dir == Path::new(PACKAGE_BIN_DIR)
    }

    fn units(&self) -> &'static Path {
        Path::new(if self.is_of_package() { PACKAGE_UNITS } else { UNITS })
    }

    fn unit(&self) -> PathBuf {
        self.units().join(UNIT)
    }

    /// The link that `systemctl enable` makes.
    fn enabled(&self) -> PathBuf {
        Path::new(UNITS).join("multi-user.target.wants").join(UNIT)
    }

    fn config_error(&self, source: ConfigError) -> InstallError {
        InstallError::Config { path: self.config.clone(), source }
    }
}

/// The version of containerd's configuration; `None` for a file that is missing or has no key.
///
/// # Errors
/// It cannot be read, or has a version that podshim does not support.
pub fn file_version(layout: &Layout) -> Result<Option<FileVersion>, InstallError> {
    match files::read_text(&layout.at(&layout.config))? {
        Some(text) => containerd::version(&text).map_err(|error| layout.config_error(error)),
        None => Ok(None),
    }
}

/// The changes that installing makes, without files that are already right. `version` is for a configuration without
/// any key; `None` leaves containerd's configuration alone.
///
/// # Errors
/// A file cannot be read, or no program can change containerd's configuration.
pub fn install(
    layout: &Layout,
    programs: &Programs,
    reference: Vec<ReferenceText>,
    version: Option<FileVersion>,
) -> Result<Vec<Change>, InstallError> {
    let mut changes = Vec::new();
    let command = layout.bin_dir.join(COMMAND);
    // If a package owns this command, it has installed the rest too, and will remove it.
    if !(layout.is_of_package() && programs.command == command) {
        for (from, to) in [(&programs.shim, layout.shim()), (&programs.command, command)] {
            let program = fs::read(from).map_err(|error| FileError::read(from, error))?;
            changes.push(Change::new(layout.at(&to), Content::Program(program))?);
        }
        for (path, text) in layout.texts(reference) {
            changes.push(Change::new(layout.at(&path), Content::Text(text))?);
        }
    }
    changes.push(Change::new(layout.at(&layout.enabled()), Content::Link(layout.unit()))?);
    if let Some(version) = version {
        changes.extend(config_changes(layout, version)?);
    }
    changes.retain(|change| !change.is_nothing());
    Ok(changes)
}

fn config_changes(layout: &Layout, version: FileVersion) -> Result<Vec<Change>, InstallError> {
    let old = files::read_text(&layout.at(&layout.config))?;
    let imported = old.as_ref().map_or(Ok(Vec::new()), |text| imported(layout, text))?;
    let runtime = layout.adapted(containerd::VERSION_3);
    let edited = containerd::add(old.as_deref(), version, &runtime, &layout.drop_in(), &imported)
        .map_err(|error| layout.config_error(error))?;
    let mut changes = Vec::new();
    // Write it before the file that imports it: containerd does not start if an import is missing.
    if let Some(drop_in) = edited.drop_in {
        changes.push(Change::new(layout.at(&layout.drop_in()), Content::Text(drop_in))?);
    }
    let Some(main) = edited.main else { return Ok(changes) };
    if let Some(old) = old.filter(|old| containerd::remove(old, &layout.drop_in()).is_none()) {
        // If the file already has podshim in it, an earlier install has made the backup.
        let copy = Content::Copy { of: layout.at(&layout.config), text: old };
        changes.push(Change::new(layout.at(&layout.backup()), copy)?);
    }
    changes.push(Change::new(layout.at(&layout.config), Content::Text(main))?);
    Ok(changes)
}

/// The changes that uninstalling makes.
///
/// # Errors
/// A file cannot be read.
pub fn uninstall(layout: &Layout, reference: Vec<ReferenceText>) -> Result<Vec<Change>, InstallError> {
    let mut changes = Vec::new();
    if let Some(text) = files::read_text(&layout.at(&layout.config))?
        && let Some(main) = containerd::remove(&text, &layout.drop_in())
    {
        let path = layout.at(&layout.config);
        let restored = files::read_text(&layout.at(&layout.backup()))?.is_some_and(|old| old == main);
        let content = match containerd::is_ours_alone(&text) {
            true => Content::Absent,
            false => Content::Text(main),
        };
        changes.push(Change::new(path, content)?);
        // A backup that differs stays: the file has been changed since, and the backup may be the only copy of the
        // original.
        if restored {
            changes.push(Change::new(layout.at(&layout.backup()), Content::Absent)?);
        }
    }
    changes.push(Change::new(layout.at(&layout.drop_in()), Content::Absent)?);
    changes.push(Change::new(layout.at(&layout.enabled()), Content::Absent)?);
    if !layout.is_of_package() {
        for (path, _) in layout.texts(reference) {
            changes.push(Change::new(layout.at(&path), Content::Absent)?);
        }
        for path in [layout.shim(), layout.bin_dir.join(COMMAND)] {
            changes.push(Change::new(layout.at(&path), Content::Absent)?);
        }
    }
    changes.retain(|change| !change.is_nothing());
    Ok(changes)
}

/// The files that a configuration imports, with their texts.
///
/// # Errors
/// A directory or a file cannot be read.
pub(crate) fn imported(layout: &Layout, text: &str) -> Result<Vec<(PathBuf, String)>, InstallError> {
    let mut found = Vec::new();
    let directory = layout.config.parent().unwrap_or(Path::new("/"));
    for pattern in containerd::imports(text) {
        let pattern = directory.join(pattern);
        let (Some(parent), Some(name)) = (pattern.parent(), pattern.file_name()) else { continue };
        let entries = match fs::read_dir(layout.at(parent)) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(FileError::read(&layout.at(parent), error).into()),
        };
        for entry in entries {
            let entry = entry.map_err(|error| FileError::read(&layout.at(parent), error))?;
            let matches =
                crate::check::glob::matches(&name.to_string_lossy(), &entry.file_name().to_string_lossy());
            if matches && let Some(text) = files::read_text(&entry.path())? {
                found.push((parent.join(entry.file_name()), text));
            }
        }
    }
    found.sort();
    Ok(found)
}
