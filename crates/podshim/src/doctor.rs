//! Whether a node is ready for podshim: one answer a subject, each with what to do about it.
//!
//! Owns what is looked at. Everything is read below one root, so that a test, or a file system made for another machine,
//! is looked at as the running node is; only that one is also asked by running its programs. Changes nothing.

mod programs;
mod runtime;
mod system;

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::finding::Finding;
use crate::node::Release;

/// How it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// As it should be.
    Ok,
    /// Pods run, but not all is as it should be.
    Warning,
    /// Pods do not run, or without their order.
    Error,
}

/// One answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was looked at.
    pub subject: &'static str,
    /// How it is.
    pub status: Status,
    /// In one line, with the value that was found.
    pub message: String,
    /// What to do.
    pub fix: Option<String>,
}

/// What is looked at.
#[derive(Clone, Debug)]
pub struct Node {
    /// `/`, or where another node's file system is.
    pub root: PathBuf,
    /// containerd's main configuration file, without the root.
    pub config: PathBuf,
    /// Where no containerd answers: the release of containerd.
    pub release: Option<Release>,
}

/// All there is to say about a node.
pub fn examine(node: &Node) -> Vec<Check> {
    let mut report = Report { node, checks: Vec::new() };
    let release = programs::containerd(&mut report);
    runtime::configuration(&mut report, release);
    programs::oci_runtime(&mut report);
    system::kernel(&mut report);
    system::cgroups(&mut report);
    system::space(&mut report);
    system::node_file(&mut report);
    system::drain(&mut report);
    runtime::runtime_class(&mut report);
    report.checks
}

/// The answers so far.
struct Report<'a> {
    node: &'a Node,
    checks: Vec<Check>,
}

impl Report<'_> {
    /// A path as this process reaches it.
    fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        self.node.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    fn read(&self, path: impl AsRef<Path>) -> Option<String> {
        std::fs::read_to_string(self.at(path)).ok()
    }

    /// Whether it is the running node, whose programs can be asked.
    fn is_this_node(&self) -> bool {
        self.node.root == Path::new("/")
    }

    /// Whether a unit is active; `None` where no systemd runs that could be asked.
    fn unit_is_active(&self, unit: &str) -> Option<bool> {
        if !self.is_this_node() || !self.at("/run/systemd/system").is_dir() {
            return None;
        }
        let arguments = ["show", "--property=ActiveState", "--value", unit];
        Some(crate::node::output("systemctl".as_ref(), &arguments)?.trim() == "active")
    }

    /// Where a program is that containerd would find. systemd's own search path: containerd's unit sets no other.
    fn program(&self, name: &str) -> Option<PathBuf> {
        let directories = ["/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"];
        directories.iter().map(|directory| Path::new(directory).join(name)).find(|path| self.is_program(path))
    }

    fn is_program(&self, path: &Path) -> bool {
        use std::os::unix::fs::PermissionsExt;
        let metadata = std::fs::metadata(self.at(path));
        metadata.is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
    }

    fn ok(&mut self, subject: &'static str, message: impl Into<String>) {
        self.checks.push(Check { subject, status: Status::Ok, message: message.into(), fix: None });
    }

    fn warn(&mut self, subject: &'static str, message: impl Into<String>, fix: impl Into<String>) {
        let (message, fix) = (message.into(), Some(fix.into()));
        self.checks.push(Check { subject, status: Status::Warning, message, fix });
    }

    fn fail(&mut self, subject: &'static str, message: impl Into<String>, fix: impl Into<String>) {
        let (message, fix) = (message.into(), Some(fix.into()));
        self.checks.push(Check { subject, status: Status::Error, message, fix });
    }

    /// What `podshim check` says of a file.
    fn finding(&mut self, subject: &'static str, finding: Finding) {
        use crate::finding::Severity;
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
