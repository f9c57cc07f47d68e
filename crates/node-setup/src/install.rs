//! The files that installing podshim on a node writes, their content, and what uninstalling removes of them.
//!
//! Owns the list of changes. Computing it writes nothing; [`files`] makes the changes. It starts, restarts and signals
//! no process, but for the drain's unit, which [`host`] starts: the node's administrator does that, and the command prints the
//! next steps; only [`stay`] and [`give_back`] may restart containerd, and only when that was allowed.

pub mod bypass;
pub mod containerd;
pub mod cri;
pub mod files;
pub mod give_back;
pub mod host;
pub mod label;
pub mod notes;
pub mod oci_runtime;
pub mod place;
pub mod root;
pub mod running;
pub mod stay;

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use node_state::paths::NODE_FILE;
use pod_spec::{KruiseMarks, Node, kruise};

use self::containerd::{ConfigError, FileVersion, Sandboxer};
use self::files::{Content, FileChange, FileError};
use self::place::{Found, Place, PlaceError};
use self::root::Root;

const SHIM: &str = "containerd-shim-podshim-v2";
const COMMAND: &str = "podshim";
/// The directory of the programs as the files in `dist` name it.
const DIST_BIN_DIR: &str = "/usr/local/bin";
/// Programs in this directory belong to a package, which removes them itself.
const PACKAGE_BIN_DIR: &str = "/usr/bin";
const RUNTIME_CLASS: &str = include_str!("../../../dist/runtimeclass.yaml");
const NODE_FILE_TEMPLATE: &str = include_str!("../../../dist/config.toml");
const DRAIN_UNIT: &str = include_str!("../../../dist/systemd/podshim-drain.service");
const METRICS_UNIT: &str = include_str!("../../../dist/systemd/podshim-metrics.service");
const SCOPE_DROP_IN: &str = include_str!("../../../dist/systemd/10-podshim.conf");
/// The beginning of the runtime's globs in the files of `dist`.
const POD_ANNOTATIONS: &str = "pod_annotations = [\"podshim.io/*\"";
/// The directory of an administrator's units, and of the links that enable units at boot.
const UNITS: &str = "/etc/systemd/system";
/// The directory of packages' units.
const PACKAGE_UNITS: &str = "/usr/lib/systemd/system";
const UNIT: &str = "podshim-drain.service";
/// An administrator enables it: an installation opens no port.
const EXPORTER: &str = "podshim-metrics.service";

/// Where everything goes. Paths are as on the running node; `root` resolves them.
#[derive(Clone, Debug)]
pub struct Layout {
    /// The file system of the node.
    pub root: Root,
    /// The directory of the programs, in the PATH of containerd.
    pub bin_dir: PathBuf,
    /// The node's containerd, and where it takes the runtime from.
    pub found: Found,
}

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
    /// It is not clear which containerd is the node's.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// A file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// A person has taken podshim out of effect.
    #[error("{}: podshim is bypassed on this node: `podshim bypass --undo` ends that; nothing was changed", .0.display())]
    Bypassed(PathBuf),
    /// containerd would not find the OCI runtime.
    #[error(
        "the OCI runtime {0:?} is not in the PATH of containerd's unit: install it first; nothing was changed"
    )]
    NoOciRuntime(String),
    /// The node's file has a mistake already, or would have one.
    #[error("{NODE_FILE}: {0}; nothing was changed")]
    NodeFile(String),
    /// Nothing to bypass.
    #[error("{}: no runtime of podshim as `podshim install` writes it; nothing was changed", .0.display())]
    NoRuntime(PathBuf),
}

impl InstallError {
    fn config(path: &Path, source: ConfigError) -> Self {
        Self::Config { path: path.to_owned(), source }
    }
}

impl Layout {
    fn change(&self, path: PathBuf, after: Content) -> Result<FileChange, FileError> {
        FileChange::new(&self.root, path, after)
    }

    fn read(&self, path: &Path) -> Result<Option<String>, FileError> {
        files::read_text(&self.root, path)
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
            (share.join("config.toml"), NODE_FILE_TEMPLATE.to_owned()),
            (share.join("containerd-version-2.toml"), self.adapted(containerd::VERSION_2)),
            (share.join("containerd-version-3.toml"), self.adapted(containerd::VERSION_3)),
            (self.unit(), self.adapted(DRAIN_UNIT)),
            (self.units().join(EXPORTER), self.adapted(METRICS_UNIT)),
            // systemd applies this to all scopes with CRI's prefix, and to no others.
            (self.units().join("cri-containerd-.scope.d/10-podshim.conf"), SCOPE_DROP_IN.to_owned()),
        ];
        let reference = reference.into_iter().map(|(path, text)| (share.with_file_name(path), text));
        texts.into_iter().chain(reference).collect()
    }

    /// Kruise's marks reach the shim only by globs of its runtime (S12, F7). A node's file with a mistake reads nothing.
    fn kruise_marks(&self) -> Result<KruiseMarks, FileError> {
        let text = self.read(Path::new(NODE_FILE))?;
        let node = text.and_then(|text| Node::parse(&text).ok()).unwrap_or_default();
        Ok(node.kruise_marks())
    }

    /// podshim's runtime in a file of that version.
    fn runtime(&self, version: FileVersion, sandboxer: Sandboxer, marks: KruiseMarks) -> String {
        let text = self.adapted(version.runtime(sandboxer));
        let globs = kruise::GLOBS.map(|glob| format!(", \"{glob}\"")).concat();
        match marks {
            KruiseMarks::Ignored => text,
            KruiseMarks::Read => text.replacen(POD_ANNOTATIONS, &format!("{POD_ANNOTATIONS}{globs}"), 1),
        }
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
        wanted(UNIT)
    }
}

/// The link by which the boot starts a unit.
fn wanted(unit: &str) -> PathBuf {
    Path::new(UNITS).join("multi-user.target.wants").join(unit)
}

/// The file that containerd 2.x imports.
fn drop_in(config: &Path) -> PathBuf {
    config.parent().unwrap_or(Path::new("/")).join("conf.d/podshim.toml")
}

/// A file as it was before the first change.
fn backup(file: &Path) -> PathBuf {
    let mut name = file.to_owned().into_os_string();
    name.push(".before-podshim");
    name.into()
}

/// The version of containerd's configuration; `None` for a file that is missing or has no key.
///
/// # Errors
/// It cannot be read, or has a version that podshim does not support.
pub fn file_version(layout: &Layout) -> Result<Option<FileVersion>, InstallError> {
    match &layout.found.place {
        Place::DropIn { version, .. } | Place::Template { version, .. } => Ok(Some(*version)),
        Place::Config(config) => match layout.read(config)? {
            Some(text) => containerd::version(&text).map_err(|error| InstallError::config(config, error)),
            None => Ok(None),
        },
    }
}

/// The files from which containerd reads podshim's runtime. Each is there as it is behind links, too: that is
/// what a change replaces.
pub fn runtime_files(layout: &Layout) -> Vec<PathBuf> {
    let mut files = match &layout.found.place {
        Place::Config(config) => vec![config.clone(), drop_in(config)],
        place => vec![place.file().to_owned()],
    };
    let targets: Vec<_> = files.iter().filter_map(|file| layout.root.behind_links(file).ok()).collect();
    files.extend(targets);
    files
}

/// The file that makes podshim containerd's default runtime, and under which name; `None` if none does. A file counts even
/// where another one that containerd reads later says otherwise: its line is one edit away from counting.
///
/// # Errors
/// A file cannot be read.
pub fn default_in_file(layout: &Layout) -> Result<Option<(PathBuf, String)>, InstallError> {
    let texts = configurations(layout)?;
    let names = names(&texts);
    let named = texts.iter().filter_map(|(file, text)| Some((file, containerd::default_runtime(text)?)));
    let mut those = named.filter(|(_, name)| names.contains(name));
    Ok(those.next().map(|(file, name)| (file.clone(), name)))
}

/// The names that podshim's runtime has in containerd's files, and the one that install gives it.
///
/// # Errors
/// A file cannot be read.
pub fn names_of_podshim(layout: &Layout) -> Result<Vec<String>, InstallError> {
    Ok(names(&configurations(layout)?))
}

fn names(texts: &[(PathBuf, String)]) -> Vec<String> {
    let own = texts.iter().flat_map(|(_, text)| containerd::names(text));
    own.chain([containerd::HANDLER.to_owned()]).collect()
}

/// All files that containerd's configuration is in, or is made of, with their texts.
fn configurations(layout: &Layout) -> Result<Vec<(PathBuf, String)>, InstallError> {
    let mut files: Vec<_> = place::all(&layout.found).iter().map(|place| place.file().to_owned()).collect();
    files.push(layout.found.configuration());
    files.sort();
    files.dedup();
    let mut texts = Vec::new();
    for file in files {
        if let Some(text) = layout.read(&file)? {
            texts.extend(imported(&layout.root, &file, &text)?);
            texts.push((file, text));
        }
    }
    Ok(texts)
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
    sandboxer: Sandboxer,
) -> Result<Vec<FileChange>, InstallError> {
    let mut changes = Vec::new();
    let command = layout.bin_dir.join(COMMAND);
    // If a package owns this command, it has installed the rest too, and will remove it.
    if !(layout.is_of_package() && programs.command == command) {
        for (from, to) in [(&programs.shim, layout.shim()), (&programs.command, command)] {
            let program = fs::read(from).map_err(|error| FileError::read(from, error))?;
            changes.push(layout.change(to, Content::Program(program))?);
        }
        for (path, text) in layout.texts(reference) {
            changes.push(layout.change(path, Content::Text(text))?);
        }
    }
    changes.push(layout.change(layout.enabled(), Content::Link(layout.unit()))?);
    if let Some(version) = version {
        let marks = layout.kruise_marks()?;
        let runtime = |version| layout.runtime(version, sandboxer, marks);
        changes.extend(match &layout.found.place {
            Place::Config(config) => config_changes(layout, config, version, runtime)?,
            Place::DropIn { file, .. } => {
                let text = containerd::alone(version, &runtime(version));
                vec![layout.change(file.clone(), Content::Text(text))?]
            }
            Place::Template { file, .. } => {
                let old = layout.read(file)?;
                let new = containerd::add_to_template(old.as_deref(), &runtime(version));
                edited(layout, file, old.filter(|old| containerd::remove_block(old).is_none()), new)?
            }
        });
    }
    changes.retain(|change| !change.is_nothing());
    Ok(changes)
}

fn config_changes(
    layout: &Layout,
    config: &Path,
    version: FileVersion,
    runtime: impl Fn(FileVersion) -> String,
) -> Result<Vec<FileChange>, InstallError> {
    let old = layout.read(config)?;
    let imported = old.as_ref().map_or(Ok(Vec::new()), |text| imported(&layout.root, config, text))?;
    let drop_in = drop_in(config);
    let new = containerd::add(old.as_deref(), version, runtime, &drop_in, &imported)
        .map_err(|error| InstallError::config(config, error))?;
    let mut changes = Vec::new();
    // Write it before the file that imports it: containerd does not start if an import is missing.
    if let Some(text) = new.drop_in {
        changes.push(layout.change(drop_in.clone(), Content::Text(text))?);
    }
    // If the file already has podshim in it, an earlier install has made the backup.
    let original = old.filter(|old| containerd::remove(old, &drop_in).is_none());
    changes.extend(edited(layout, config, original, new.main)?);
    Ok(changes)
}

/// The changes of a file that others write too: a backup of the `original`, and the new text, if it is another.
fn edited(
    layout: &Layout,
    file: &Path,
    original: Option<String>,
    new: Option<String>,
) -> Result<Vec<FileChange>, InstallError> {
    let Some(new) = new else { return Ok(Vec::new()) };
    let mut changes = Vec::new();
    if let Some(text) = original {
        let copy = Content::Copy { of: file.to_owned(), text };
        changes.push(layout.change(backup(file), copy)?);
    }
    changes.push(layout.change(file.to_owned(), Content::Text(new))?);
    Ok(changes)
}

/// The changes that give such a file its text of before; `without` is its text without podshim.
fn restored(
    layout: &Layout,
    file: &Path,
    text: &str,
    without: String,
) -> Result<Vec<FileChange>, InstallError> {
    let is_original = layout.read(&backup(file))?.is_some_and(|old| old == without);
    let content = match containerd::is_ours_alone(text) {
        true => Content::Absent,
        false => Content::Text(without),
    };
    let mut changes = vec![layout.change(file.to_owned(), content)?];
    // A backup that differs stays: the file has been changed since, and the backup may be the only copy of the
    // original.
    if is_original {
        changes.push(layout.change(backup(file), Content::Absent)?);
    }
    Ok(changes)
}

/// The changes that take podshim's runtime out of containerd's configuration.
///
/// # Errors
/// A file cannot be read.
pub fn without_runtime(layout: &Layout) -> Result<Vec<FileChange>, InstallError> {
    let mut changes = Vec::new();
    for place in place::all(&layout.found) {
        match &place {
            Place::DropIn { file, .. } => changes.push(layout.change(file.clone(), Content::Absent)?),
            Place::Template { file, .. } => {
                if let Some(text) = layout.read(file)?
                    && let Some(without) = containerd::remove_block(&text)
                {
                    changes.extend(restored(layout, file, &text, without)?);
                }
            }
            Place::Config(config) => {
                let drop_in = drop_in(config);
                if let Some(text) = layout.read(config)?
                    && let Some(without) = containerd::remove(&text, &drop_in)
                {
                    changes.extend(restored(layout, config, &text, without)?);
                }
                changes.push(layout.change(drop_in, Content::Absent)?);
            }
        }
    }
    changes.retain(|change| !change.is_nothing());
    Ok(changes)
}

/// The changes that put containerd's own shim in the place of podshim; none if it is there already.
///
/// # Errors
/// A file cannot be read, or there is no runtime of podshim that a program can change.
pub fn bypass(layout: &Layout) -> Result<Vec<FileChange>, InstallError> {
    let texts = configurations(layout)?;
    let options =
        texts.iter().map(|(_, text)| bypass::options_of_runc(text)).find(|options| !options.is_empty());
    let options = options.unwrap_or_default();
    let mut changes = Vec::new();
    for (file, text) in &texts {
        if let Some(new) = bypass::bypassed(text, &options) {
            let is_whole = containerd::version(&new).is_ok() || containerd::version(text).is_err();
            if !is_whole || !containerd::names(&new).is_empty() {
                return Err(InstallError::NoRuntime(file.clone()));
            }
            changes.push(layout.change(file.clone(), Content::Text(new))?);
        }
    }
    let is_there = texts.iter().any(|(_, text)| bypass::is_bypassed(text));
    if changes.is_empty() && !is_there {
        return Err(InstallError::NoRuntime(layout.found.place.file().to_owned()));
    }
    Ok(changes)
}

/// The changes that put podshim back.
///
/// # Errors
/// A file cannot be read.
pub fn without_bypass(layout: &Layout) -> Result<Vec<FileChange>, InstallError> {
    let mut changes = Vec::new();
    for (file, text) in configurations(layout)? {
        if let Some(new) = bypass::restored(&text) {
            changes.push(layout.change(file, Content::Text(new))?);
        }
    }
    Ok(changes)
}

/// An installation would undo what a person has done in an emergency.
///
/// # Errors
/// [`InstallError::Bypassed`], or a file cannot be read.
pub fn refuse_bypassed(layout: &Layout) -> Result<(), InstallError> {
    match configurations(layout)?.into_iter().find(|(_, text)| bypass::is_bypassed(text)) {
        Some((file, _)) => Err(InstallError::Bypassed(file)),
        None => Ok(()),
    }
}

/// The changes that uninstalling makes.
///
/// # Errors
/// A file cannot be read.
pub fn uninstall(layout: &Layout, reference: Vec<ReferenceText>) -> Result<Vec<FileChange>, InstallError> {
    let mut changes = without_runtime(layout)?;
    for link in [layout.enabled(), wanted(EXPORTER)] {
        changes.push(layout.change(link, Content::Absent)?);
    }
    if !layout.is_of_package() {
        for (path, _) in layout.texts(reference) {
            changes.push(layout.change(path, Content::Absent)?);
        }
        for path in [layout.shim(), layout.bin_dir.join(COMMAND)] {
            changes.push(layout.change(path, Content::Absent)?);
        }
    }
    for note in [notes::RESTARTED, notes::REFUSED] {
        changes.push(layout.change(note.into(), Content::Absent)?);
    }
    changes.retain(|change| !change.is_nothing());
    Ok(changes)
}

/// The files that a configuration imports, with their texts.
///
/// # Errors
/// A directory or a file cannot be read.
pub(crate) fn imported(
    root: &Root,
    config: &Path,
    text: &str,
) -> Result<Vec<(PathBuf, String)>, InstallError> {
    let mut found = Vec::new();
    let directory = config.parent().unwrap_or(Path::new("/"));
    for pattern in containerd::imports(text) {
        let pattern = directory.join(pattern);
        let (Some(parent), Some(name)) = (pattern.parent(), pattern.file_name()) else { continue };
        let names = match root.list(parent) {
            Ok(names) => names,
            Err(error) if error.kind() == ErrorKind::NotFound => continue,
            Err(error) => return Err(FileError::read(&root.shown(parent), error).into()),
        };
        for file in names {
            let matches = crate::glob::matches(&name.to_string_lossy(), &file.to_string_lossy());
            let path = parent.join(file);
            if matches && let Some(text) = files::read_text(root, &path)? {
                found.push((path, text));
            }
        }
    }
    found.sort();
    Ok(found)
}
