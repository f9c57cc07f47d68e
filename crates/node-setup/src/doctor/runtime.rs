//! podshim's runtime as containerd sees it: which file has it, what is wrong with it, and whether the shim that it
//! names is on the node.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use manifests::source::Source;
use toml_edit::{Document, Item, Table, TableLike, Value};

use super::report::{Report, Status};
use crate::containerd_config;
use crate::install::containerd::{FileVersion, RuntimePlace, section};
use crate::install::root::Root;
use crate::install::{self, bypass, containerd as config_text};
use crate::node::{FIRST_WITH_SHIM, Release};

const SUBJECT: &str = "configuration";
const SHIM: &str = "containerd-shim-podshim-v2";
const CRI_PLUGINS: [&str; 3] = ["cri", "io.containerd.grpc.v1.cri", "io.containerd.cri.v1.runtime"];

/// Checks containerd's configuration and the files that it imports. Returns the OCI runtime that podshim's runtime names there.
pub(super) fn configuration(report: &mut Report<'_>, release: Option<Release>) -> Option<String> {
    let config = &report.node.config.clone();
    let (text, version) = main_file(report, config)?;
    let shown = config.display().to_string();
    if version == FileVersion::Three && release.is_some_and(|release| release.major < 2) {
        let message = format!("{shown}: version 3 is for containerd 2.x");
        report.fail(SUBJECT, message, "write a file of version 2");
    }
    let mut files = vec![(config.clone(), text)];
    match install::imported(&Root::new(&report.node.root), config, &files[0].1) {
        Ok(imported) => files.extend(imported),
        Err(error) => report.fail(SUBJECT, error.to_string(), "repair its imports"),
    }
    disabled_plugins(report, &files);
    if let Some((path, _)) = files.iter().find(|(_, text)| bypass::is_bypassed(text)) {
        let message = format!(
            "{}: podshim is bypassed: new pods run on containerd's own shim, without order",
            path.display()
        );
        report.fail(SUBJECT, message, "podshim bypass --undo, then restart containerd");
        return None;
    }
    // containerd 1.x takes a section only from the last file that has it; 2.x merges all of them.
    let with_section: Vec<_> = files
        .iter()
        .filter(|(_, text)| {
            Document::parse(text.as_str()).is_ok_and(|file| has_section(file.as_table(), version))
        })
        .collect();
    let Some(counts) = place(&with_section, version) else {
        report.fail(SUBJECT, format!("{shown}: no runtime of podshim"), "podshim install");
        return None;
    };
    if version == FileVersion::Two {
        forgotten_runc(report, counts);
    }
    sandboxer(report, counts, release);
    examine_runtime(report, counts);
    config_text::binary_name(&counts.1)
}

/// The main file's text and version; `None` with a finding where it has none.
fn main_file(report: &mut Report<'_>, config: &Path) -> Option<(String, FileVersion)> {
    let shown = config.display();
    let text = match std::fs::read_to_string(report.at(config)) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            report.fail(SUBJECT, format!("{shown}: {error}"), "run podshim doctor as root");
            return None;
        }
        Err(_) => {
            report.fail(SUBJECT, format!("{shown}: there is none, or it cannot be read"), "podshim install");
            return None;
        }
    };
    match config_text::version(&text) {
        Ok(Some(version)) => return Some((text, version)),
        Ok(None) => report.fail(SUBJECT, format!("{shown}: says nothing"), "podshim install"),
        Err(error) => report.fail(SUBJECT, format!("{shown}: {error}"), "containerd config migrate"),
    }
    None
}

/// containerd before 2.3 panics with `sandboxer = "shim"` when a pod of the node's network is created.
fn sandboxer(report: &mut Report<'_>, (path, text): &(PathBuf, String), release: Option<Release>) {
    let Some(release) = release.filter(|release| *release < FIRST_WITH_SHIM) else { return };
    if config_text::uses_sandbox_api(text) {
        let message = format!(
            "{}: sandboxer = \"shim\" needs containerd 2.3 or later, and this is {}.{}: a pod of the node's network ends the \
             daemon",
            path.display(),
            release.major,
            release.minor
        );
        report.fail(SUBJECT, message, "podshim uninstall, then podshim install without --sandboxer");
    }
}

fn place<'a>(files: &[&'a (PathBuf, String)], version: FileVersion) -> Option<&'a (PathBuf, String)> {
    let has_runtime = |file: &&&(PathBuf, String)| config_text::runtime_place(&file.1) == RuntimePlace::Here;
    match version {
        FileVersion::Two => files.last().filter(has_runtime).copied(),
        FileVersion::Three => files.iter().rfind(has_runtime).copied(),
    }
}

fn has_section(root: &Table, version: FileVersion) -> bool {
    section(root, version.plugin()).is_some()
}

fn examine_runtime(report: &mut Report<'_>, (path, text): &(PathBuf, String)) {
    let source = Source { name: path.display().to_string(), text: text.clone() };
    // `sandboxer` compares it with the node's containerd.
    let findings = containerd_config::check(&source, &super::system::node_of(report), None);
    let before = report.checks.len();
    findings.into_iter().for_each(|finding| report.finding(SUBJECT, finding));
    if report.checks[before..].iter().all(|check| check.status == Status::Ok) {
        report.ok(SUBJECT, format!("{}: a runtime of podshim", path.display()));
    }
    shim(report, text);
}

/// Checks that the shim exists: the program that the runtime names, or that containerd derives from the runtime's type.
fn shim(report: &mut Report<'_>, text: &str) {
    let named = config_text::runtime_path(text).map(PathBuf::from);
    let found = match &named {
        Some(path) => Some(path.clone()).filter(|path| report.is_program(path)),
        None => report.program(SHIM),
    };
    match found {
        Some(path) => {
            let version = super::programs::version_of(report, &path);
            report.ok("shim", version);
        }
        None => {
            let place = named.map_or(format!("no {SHIM} in containerd's PATH"), |path| {
                format!("{}: no such program", path.display())
            });
            report.fail("shim", place, "podshim install");
        }
    }
}

/// CONTRACT §1.7: containerd 1.x forgets its built-in runc when a file names any runtime.
fn forgotten_runc(report: &mut Report<'_>, (path, text): &(PathBuf, String)) {
    let Ok(document) = Document::parse(text.as_str()) else { return };
    let section = section(document.as_table(), FileVersion::Two.plugin());
    let default = section.and_then(config_text::default_of_section).unwrap_or("runc");
    let runtimes = section.and_then(config_text::runtimes);
    if runtimes.is_some_and(|runtimes: &dyn TableLike| !runtimes.contains_key(default)) {
        report.fail(
            SUBJECT,
            format!("{}: the default runtime {default:?} is not among the runtimes", path.display()),
            format!("add [plugins.\"{}\".containerd.runtimes.{default}]", FileVersion::Two.plugin()),
        );
    }
}

fn disabled_plugins(report: &mut Report<'_>, files: &[(PathBuf, String)]) {
    for (path, text) in files {
        let Ok(document) = Document::parse(text.as_str()) else { continue };
        let disabled = document.as_table().get("disabled_plugins").and_then(Item::as_array);
        let mut disabled = disabled.into_iter().flatten().filter_map(Value::as_str);
        if let Some(plugin) = disabled.find(|plugin| CRI_PLUGINS.contains(plugin)) {
            let message =
                format!("{}: the plugin {plugin:?} is disabled: no kubelet can run pods", path.display());
            report.fail(SUBJECT, message, "remove it from disabled_plugins");
        }
    }
}

/// Checks for the file to apply to the cluster; no node can see whether it has been applied.
pub(super) fn runtime_class(report: &mut Report<'_>) {
    let places = ["/usr/local/share/podshim/runtimeclass.yaml", "/usr/share/podshim/runtimeclass.yaml"];
    match places.iter().find(|path| report.at(Path::new(path)).exists()) {
        Some(path) => report.ok("RuntimeClass", format!("{path}: once for a cluster, kubectl apply -f it")),
        None => report.warn("RuntimeClass", "its file is not installed", "podshim install"),
    }
}
