//! Adds podshim's runtime to the text of containerd's configuration and removes it; every other byte stays.
//!
//! Owns what each version needs. In a file of version 2 (containerd 1.6 and 1.7) it adds the runtime at the end: there
//! an imported file replaces the whole section of a plugin. A file of version 3 (2.x) imports a separate file with the
//! runtime: 2.x merges sections. Reads and writes no file.

use std::ops::Range;
use std::path::{Path, PathBuf};

use toml_edit::{Document, Item, Table, TableLike, Value};

use crate::containerd_config;
use crate::glob;

/// A runtime's name in containerd's configuration, and the RuntimeClass's handler.
pub const HANDLER: &str = "podshim";
/// The key of the runtime for pods that name no RuntimeClass.
const DEFAULT_RUNTIME: &str = "default_runtime_name";
const BEGIN: &str = "# podshim: begin (written by podshim install; podshim uninstall takes it out)";
const END: &str = "# podshim: end";
/// The runtime in a file of version 2.
pub const VERSION_2: &str = include_str!("../../../../dist/containerd/version-2.toml");
/// The runtime in a file of version 3.
pub const VERSION_3: &str = include_str!("../../../../dist/containerd/version-3.toml");
/// The same for the Sandbox API. There `runtime_path` is not looked at, and the pod's annotations come without a pattern.
const VERSION_3_SHIM: &str = include_str!("../../../../dist/containerd/version-3-shim.toml");
/// containerd 1.x has a built-in runtime of this name, but only as long as its file names no runtime at all.
const RUNC: &str = "\
# As containerd has it without a configuration: it forgets it when a file names any other runtime.
[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]
  runtime_type = \"io.containerd.runc.v2\"
";
const OWN_FILE: &str = "# Written by podshim install; podshim uninstall removes it.\n";

/// By this k3s and rke2 take their own template, before what follows it.
const BASE_TEMPLATE: &str = "{{ template \"base\" . }}\n\n";

/// The form of a configuration file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileVersion {
    /// Of containerd 1.6 and 1.7; 2.x reads it too.
    Two,
    /// Of containerd 2.x.
    Three,
}

impl FileVersion {
    const ALL: [Self; 2] = [Self::Two, Self::Three];

    /// The version that a containerd of this major release writes itself.
    pub fn of_release(major: u32) -> Self {
        if major < 2 { Self::Two } else { Self::Three }
    }

    /// The plugin whose section has the runtimes.
    pub(crate) fn plugin(self) -> &'static str {
        match self {
            Self::Two => "io.containerd.grpc.v1.cri",
            Self::Three => "io.containerd.cri.v1.runtime",
        }
    }

    /// podshim's runtime in a file of this version.
    pub(crate) fn runtime(self, sandboxer: Sandboxer) -> &'static str {
        match (self, sandboxer) {
            (Self::Two, _) => VERSION_2,
            (Self::Three, Sandboxer::Podsandbox) => VERSION_3,
            (Self::Three, Sandboxer::Shim) => VERSION_3_SHIM,
        }
    }

    fn line(self) -> &'static str {
        match self {
            Self::Two => "version = 2",
            Self::Three => "version = 3",
        }
    }
}

/// Who makes a pod's sandbox, in containerd's words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Sandboxer {
    /// containerd asks the shim for a pause container.
    #[default]
    Podsandbox,
    /// containerd asks the shim for the pod, by the Sandbox API.
    Shim,
}

/// Why a program cannot change the configuration.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It is not TOML.
    #[error("line {line}: not valid TOML: {problem}")]
    Syntax {
        /// Counted from 1.
        line: usize,
        /// The parser's message.
        problem: String,
    },
    /// It has neither version 2 nor 3.
    #[error(
        "version {version}: only 2 (containerd 1.6, 1.7) and 3 (2.x) are known here; `containerd config migrate` writes a newer one"
    )]
    Version {
        /// 1 if the file has no `version`.
        version: i64,
    },
    /// Another program rewrites it at each start.
    #[error("it says {comment:?}: put the runtime into what it is made from (see podshim install -h)")]
    Generated {
        /// The line that says so.
        comment: String,
    },
    /// It has a runtime of that name that is not podshim's.
    #[error("it has a runtime {HANDLER:?} that is not podshim's: rename that")]
    Taken,
    /// containerd 1.x would ignore what is added here: an imported file replaces the whole section.
    #[error("it imports {}, which replaces the whole section {plugin:?}: give that as --config", .path.display())]
    Replaced {
        /// The imported file.
        path: PathBuf,
        /// The section.
        plugin: &'static str,
    },
    /// It has inline tables: nothing can be added to them at another place of the file.
    #[error("a table cannot be added to it ({problem}): write its runtimes as [tables]")]
    Form {
        /// The parser's message about the result.
        problem: String,
    },
}

/// The new texts of the files; `None` for a file that does not change.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Edited {
    /// The main file.
    pub main: Option<String>,
    /// The file that the main file imports.
    pub drop_in: Option<String>,
}

/// The version of a configuration file; `None` if it has no key at all.
///
/// # Errors
/// It is not TOML, or has another version.
pub fn version(text: &str) -> Result<Option<FileVersion>, ConfigError> {
    let document = parse(text)?;
    let root = document.as_table();
    if root.is_empty() {
        return Ok(None);
    }
    match root.get("version").and_then(Item::as_integer).unwrap_or(1) {
        2 => Ok(Some(FileVersion::Two)),
        3 => Ok(Some(FileVersion::Three)),
        version => Err(ConfigError::Version { version }),
    }
}

/// The `imports` of a file, as written.
pub fn imports(text: &str) -> Vec<String> {
    let Ok(document) = parse(text) else { return Vec::new() };
    let values = document.as_table().get("imports").and_then(Item::as_array).into_iter().flatten();
    values.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Adds podshim's runtime. `default` is the version of a file without any key. `runtime` is its text; for version 3
/// that of the file `drop_in`, which the main file then imports. `imported` are the files that it already imports.
///
/// # Errors
/// Why only a person can do it. A file that already has the runtime, from `install` or by hand, is no error.
pub fn add(
    text: Option<&str>,
    default: FileVersion,
    runtime: impl Fn(FileVersion) -> String,
    drop_in: &Path,
    imported: &[(PathBuf, String)],
) -> Result<Edited, ConfigError> {
    let present = text.unwrap_or_default();
    let without = remove(present, drop_in).unwrap_or_else(|| present.to_owned());
    let version = version(&without)?.unwrap_or(default);
    if let Some(comment) = generated(&without) {
        return Err(ConfigError::Generated { comment });
    }
    let document = parse(&without)?;
    let root = document.as_table();
    let runtimes = section(root, version.plugin()).and_then(runtimes);
    match runtimes.and_then(|runtimes| runtimes.get(HANDLER)).and_then(Item::as_table_like) {
        // Written by hand: `podshim check` reports what is wrong with it.
        Some(runtime) if containerd_config::is_podshim(runtime) => return Ok(Edited::default()),
        Some(_) => return Err(ConfigError::Taken),
        None => {}
    }
    let own_version = if root.is_empty() { format!("{}\n", version.line()) } else { String::new() };
    let (main, own_file) = match version {
        FileVersion::Two => {
            let replaces = |text: &str| {
                parse(text).is_ok_and(|file| section(file.as_table(), version.plugin()).is_some())
            };
            if let Some((path, _)) = imported.iter().find(|(_, text)| replaces(text)) {
                return Err(ConfigError::Replaced { path: path.clone(), plugin: version.plugin() });
            }
            let forgotten = if runtimes.is_none_or(TableLike::is_empty) { RUNC } else { "" };
            (with_block(text, &format!("{own_version}{forgotten}{}", runtime(version))), None)
        }
        FileVersion::Three => {
            let main = match root.is_empty() {
                true => with_block(text, &format!("{own_version}imports = [\"{}\"]\n", drop_in.display())),
                false => importing(present, drop_in)?,
            };
            (main, Some(alone(version, &runtime(version))))
        }
    };
    parse(&main).map_err(|error| ConfigError::Form { problem: error.to_string() })?;
    Ok(Edited { main: (text != Some(&main)).then_some(main), drop_in: own_file })
}

/// The text of a file that has nothing but podshim's runtime.
pub fn alone(version: FileVersion, runtime: &str) -> String {
    format!("{OWN_FILE}{}\n\n{runtime}", version.line())
}

/// Adds podshim's runtime to a template, from which a configuration of that version is made; `None` if a person has done
/// so. Without a template, one that takes the built-in one and adds to it.
pub fn add_to_template(text: Option<&str>, runtime: &str) -> Option<String> {
    match text.filter(|text| !is_ours_alone(text)) {
        None => Some(with_block(None, &format!("{BASE_TEMPLATE}{runtime}"))),
        Some(text) => {
            let without = remove_block(text).unwrap_or_else(|| text.to_owned());
            let is_there = without.contains(&format!(".runtimes.{HANDLER}]"));
            (!is_there).then(|| with_block(Some(text), runtime))
        }
    }
}

/// The text without the block that [`add`] or [`add_to_template`] put in; `None` if it has none.
pub fn remove_block(text: &str) -> Option<String> {
    block(text).map(|block| text[..block.start].to_owned() + &text[block.end..])
}

/// The text without what [`add`] put in; `None` if it has nothing of that.
pub fn remove(text: &str, drop_in: &Path) -> Option<String> {
    let without = |range: Range<usize>| Some(text[..range.start].to_owned() + &text[range.end..]);
    if let Some(text) = remove_block(text) {
        return Some(text);
    }
    let line = format!("\n{}", import_line(drop_in));
    if let Some(at) = text.find(&line) {
        return without(at..at + line.len());
    }
    let document = parse(text).ok()?;
    let values = document.as_table().get("imports")?.as_array()?;
    let is_ours = |value: &Value| value.as_str().is_some_and(|value| Path::new(value) == drop_in);
    let index = values.iter().position(is_ours)?;
    let mut range = values.get(index)?.span()?;
    if index > 0 {
        range.start = values.get(index - 1)?.span()?.end;
    }
    without(range)
}

/// Whether a file has nothing but what [`add`] wrote: then there was no file before.
pub fn is_ours_alone(text: &str) -> bool {
    block(text) == Some(0..text.len()) && text.starts_with(BEGIN)
}

/// The range of the block that [`add`] wrote, with the line end before it.
fn block(text: &str) -> Option<Range<usize>> {
    let begin = text.find(BEGIN)?;
    let end = begin + text[begin..].find(END)? + END.len();
    let end = end + usize::from(text[end..].starts_with('\n'));
    Some(begin - usize::from(text[..begin].ends_with('\n'))..end)
}

/// Puts the block at the end of the file; a block that is already there keeps its place. The line end before the block
/// belongs to it, so that removing it restores a last line that had no line end.
fn with_block(text: Option<&str>, body: &str) -> String {
    let new = format!("{BEGIN}\n{body}{END}\n");
    let Some(text) = text else { return new };
    let old = block(text).unwrap_or(text.len()..text.len());
    let line_end = if old.start == 0 && text.starts_with(BEGIN) { "" } else { "\n" };
    format!("{}{line_end}{new}{}", &text[..old.start], &text[old.end..])
}

fn import_line(drop_in: &Path) -> String {
    format!("imports = [\"{}\"] # podshim install", drop_in.display())
}

/// The text with `drop_in` among its imports.
fn importing(text: &str, drop_in: &Path) -> Result<String, ConfigError> {
    let document = parse(text)?;
    let root = document.as_table();
    let directory = drop_in.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
    let matches = |pattern: &String| {
        glob::matches(&directory.join(pattern).to_string_lossy(), &drop_in.to_string_lossy())
    };
    if imports(text).iter().any(matches) {
        return Ok(text.to_owned());
    }
    let insert = |at: usize, new: &str| Ok(format!("{}{new}{}", &text[..at], &text[at..]));
    let path = drop_in.display();
    match root.get("imports").map(Item::as_array) {
        Some(Some(values)) => {
            if let Some(last) = values.iter().last().and_then(Value::span) {
                return insert(last.end, &format!(", \"{path}\""));
            }
            // The list is empty: insert right after its bracket.
            let begin = values.span().map_or(0, |span| span.start + 1);
            insert(begin, &format!("\"{path}\""))
        }
        Some(None) => Err(ConfigError::Form { problem: "imports is no list".to_owned() }),
        // Insert below the version: at the end of the file the key would belong to the last table.
        None => {
            let version = root.get("version").and_then(Item::span).map_or(0, |span| span.end);
            let line_end = text[version..].find('\n').map_or(text.len(), |length| version + length);
            insert(line_end, &format!("\n{}", import_line(drop_in)))
        }
    }
}

/// The comment in which a program says that it owns the file, as k3s and rke2 do.
fn generated(text: &str) -> Option<String> {
    let comments = text.lines().take_while(|line| line.trim().is_empty() || line.starts_with('#'));
    comments.map(str::trim).find(|line| line.to_ascii_uppercase().contains("DO NOT EDIT")).map(str::to_owned)
}

fn parse(text: &str) -> Result<Document<&str>, ConfigError> {
    Document::parse(text).map_err(|error| ConfigError::Syntax {
        line: 1 + text[..error.span().map_or(0, |span| span.start).min(text.len())].matches('\n').count(),
        problem: error.message().lines().next().unwrap_or_default().to_owned(),
    })
}

/// Whether a file has podshim's runtime.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuntimePlace {
    /// It does, from `install` or by hand, in the section of either version.
    Here,
    /// It does not.
    Elsewhere,
}

/// Whether a file has podshim's runtime, under any name.
pub fn runtime_place(text: &str) -> RuntimePlace {
    let found = with_runtimes(text, |runtime| containerd_config::is_podshim(runtime).then_some(()));
    if found.is_some() { RuntimePlace::Here } else { RuntimePlace::Elsewhere }
}

/// The `runtime_path` of podshim's runtime, if it is set.
pub fn runtime_path(text: &str) -> Option<String> {
    with_runtimes(text, |runtime| {
        let path = runtime.get("runtime_path").and_then(Item::as_str).filter(|path| !path.is_empty());
        path.filter(|_| containerd_config::is_podshim(runtime)).map(str::to_owned)
    })
}

/// The OCI runtime that podshim's runtime names.
pub(crate) fn binary_name(text: &str) -> Option<String> {
    with_runtimes(text, |runtime| {
        let options = runtime.get("options").and_then(Item::as_table_like);
        let name = options.and_then(|options| options.get("BinaryName")).and_then(Item::as_str);
        name.filter(|name| !name.is_empty() && containerd_config::is_podshim(runtime)).map(str::to_owned)
    })
}

/// Whether podshim's runtime is asked by the Sandbox API.
pub(crate) fn uses_sandbox_api(text: &str) -> bool {
    let uses_it = |runtime: &dyn TableLike| {
        let sandboxer = runtime.get("sandboxer").and_then(Item::as_str);
        (containerd_config::is_podshim(runtime) && sandboxer == Some("shim")).then_some(())
    };
    with_runtimes(text, uses_it).is_some()
}

/// The names under which a file has podshim's runtime.
pub(crate) fn names(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    let take = |name: &str, runtime: &dyn TableLike| -> Option<()> {
        if containerd_config::is_podshim(runtime) {
            names.push(name.to_owned());
        }
        None
    };
    with_named_runtimes(text, take);
    names
}

/// The default runtime that a file names, in the section of either version. A template is no TOML: there the line counts.
pub(crate) fn default_runtime(text: &str) -> Option<String> {
    let Ok(document) = parse(text) else {
        let mut values = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix(DEFAULT_RUNTIME)?.trim().strip_prefix('='));
        return values.next_back().map(|value| value.trim().trim_matches(['"', '\'']).to_owned());
    };
    let named = |version: &FileVersion| default_of_section(section(document.as_table(), version.plugin())?);
    FileVersion::ALL.iter().find_map(named).map(str::to_owned)
}

/// The default runtime that a plugin's section names.
pub(crate) fn default_of_section(section: &dyn TableLike) -> Option<&str> {
    section.get("containerd")?.get(DEFAULT_RUNTIME)?.as_str()
}

fn with_runtimes<T>(text: &str, read: impl Fn(&dyn TableLike) -> Option<T>) -> Option<T> {
    with_named_runtimes(text, |_, runtime| read(runtime))
}

fn with_named_runtimes<T>(text: &str, mut read: impl FnMut(&str, &dyn TableLike) -> Option<T>) -> Option<T> {
    let document = parse(text).ok()?;
    let sections = FileVersion::ALL
        .iter()
        .filter_map(|version| section(document.as_table(), version.plugin()).and_then(runtimes));
    sections.flat_map(|runtimes| runtimes.iter()).find_map(|(name, item)| read(name, item.as_table_like()?))
}

/// The section of a plugin.
pub(crate) fn section<'a>(root: &'a Table, plugin: &str) -> Option<&'a dyn TableLike> {
    root.get("plugins")?.get(plugin)?.as_table_like()
}

/// The runtimes of a plugin's section.
pub(crate) fn runtimes(section: &dyn TableLike) -> Option<&dyn TableLike> {
    section.get("containerd")?.get("runtimes")?.as_table_like()
}
