//! The answers of the checks, and the node that they are about: its files below one root, its programs.

use std::path::{Path, PathBuf};

use manifests::finding::{Finding, Severity};
use serde::Serialize;

use crate::node::{PATH_OF_UNITS, Release};

/// The result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// As it should be.
    Ok,
    /// Pods run, but something is not as it should be.
    Warning,
    /// Pods do not run, or without their order.
    Error,
}

/// One answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was checked.
    pub subject: &'static str,
    /// The result.
    pub status: Status,
    /// One line, with the value that was found.
    pub message: String,
    /// What to do.
    pub fix: Option<String>,
}

/// The node to check.
#[derive(Clone, Debug)]
pub struct NodeUnderTest {
    /// `/`, or the root of another node's file system.
    pub root: PathBuf,
    /// containerd's main configuration file, without the root.
    pub config: PathBuf,
    /// The release of containerd to assume; `None`: ask the containerd in the PATH.
    pub release: Option<Release>,
}

/// The answers so far.
pub(super) struct Report<'a> {
    pub(super) node: &'a NodeUnderTest,
    pub(super) checks: Vec<Check>,
}

impl<'a> Report<'a> {
    /// No answers yet.
    pub(super) fn of(node: &'a NodeUnderTest) -> Self {
        Self { node, checks: Vec::new() }
    }

    /// A path as this process reaches it.
    pub(super) fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.node.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    pub(super) fn read(&self, path: impl AsRef<Path>) -> Option<String> {
        std::fs::read_to_string(self.at(path)).ok()
    }

    /// Whether this is the running node: only its programs can be run.
    pub(super) fn is_this_node(&self) -> bool {
        self.node.root == Path::new("/")
    }

    /// Whether a unit is active; `None` where no systemd runs that could be asked.
    pub(super) fn unit_is_active(&self, unit: &str) -> Option<bool> {
        if !self.is_this_node() || !self.at("/run/systemd/system").is_dir() {
            return None;
        }
        let arguments = ["show", "--property=ActiveState", "--value", unit];
        Some(crate::node::output("systemctl".as_ref(), &arguments)?.trim() == "active")
    }

    /// The path of a program as containerd would find it.
    pub(super) fn program(&self, name: &str) -> Option<PathBuf> {
        PATH_OF_UNITS
            .iter()
            .map(|directory| Path::new(directory).join(name))
            .find(|path| self.is_program(path))
    }

    pub(super) fn is_program(&self, path: &Path) -> bool {
        use std::os::unix::fs::PermissionsExt;
        let metadata = std::fs::metadata(self.at(path));
        metadata.is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    }

    pub(super) fn ok(&mut self, subject: &'static str, message: impl Into<String>) {
        self.checks.push(Check { subject, status: Status::Ok, message: message.into(), fix: None });
    }

    pub(super) fn warn(&mut self, subject: &'static str, message: impl Into<String>, fix: impl Into<String>) {
        let (message, fix) = (message.into(), Some(fix.into()));
        self.checks.push(Check { subject, status: Status::Warning, message, fix });
    }

    pub(super) fn fail(&mut self, subject: &'static str, message: impl Into<String>, fix: impl Into<String>) {
        let (message, fix) = (message.into(), Some(fix.into()));
        self.checks.push(Check { subject, status: Status::Error, message, fix });
    }

    /// Adds a finding of `podshim check`.
    pub(super) fn finding(&mut self, subject: &'static str, finding: Finding) {
        let status = match finding.severity {
            Severity::Error => Status::Error,
            Severity::Warning => Status::Warning,
            Severity::Note => Status::Ok,
        };
        let key = finding.key.filter(|key| !finding.message.starts_with(key.as_str()));
        let key = key.map_or(String::new(), |key| format!("{key}: "));
        let message = format!("{}:{}: {key}{}", finding.file, finding.line, finding.message);
        self.checks.push(Check { subject, status, message, fix: finding.fix });
    }
}
