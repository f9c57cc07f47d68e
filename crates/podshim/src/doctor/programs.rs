//! The programs that a pod needs on its node: containerd and an OCI runtime.

use std::path::Path;

use super::report::Report;
use crate::node::{Release, output};

/// The oldest release on which the e2e tests run.
const OLDEST: Release = Release { major: 1, minor: 6 };

/// Checks the release of containerd, and returns it.
pub(super) fn containerd(report: &mut Report<'_>) -> Option<Release> {
    let installed = || if report.is_this_node() { Release::installed() } else { None };
    let release = report.node.release.or_else(installed);
    match release {
        Some(release) if release < OLDEST => report.fail(
            "containerd",
            format!("{}.{}: podshim is known to work from 1.6 on", release.major, release.minor),
            "install containerd 1.6 or later",
        ),
        Some(release) => report.ok("containerd", format!("{}.{}", release.major, release.minor)),
        None => report.warn(
            "containerd",
            "which release it is cannot be seen: there is none in the PATH",
            "podshim doctor --containerd VERSION",
        ),
    }
    release
}

/// Checks for an OCI runtime.
pub(super) fn oci_runtime(report: &mut Report<'_>) {
    let Some(path) = ["runc", "crun"].iter().find_map(|name| report.program(name)) else {
        return report.fail("OCI runtime", "neither runc nor crun is in the PATH", "install runc");
    };
    report.ok("OCI runtime", version_of(report, &path));
}

/// The path of a program with the line of its `--version` output that has the version: the one that begins with
/// `Version:`, else the first.
pub(super) fn version_of(report: &Report<'_>, path: &Path) -> String {
    let output = if report.is_this_node() { output(path.as_os_str(), &["--version"]) } else { None };
    let line = output.as_deref().and_then(|output| {
        let named = output.lines().map(str::trim).find(|line| line.starts_with("Version:"));
        named.or(output.lines().next()).map(|line| format!(" ({line})"))
    });
    format!("{}{}", path.display(), line.unwrap_or_default())
}
