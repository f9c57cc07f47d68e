//! The programs that a pod needs on its node: containerd and an OCI runtime.

use std::path::{Path, PathBuf};

use node_state::paths::NODE_FILE;

use super::report::Report;
use crate::node::{Release, output};

/// The oldest release on which the e2e tests run.
const OLDEST: Release = Release { major: 1, minor: 6 };

/// Those on which `hack/test --full` runs, and those that were tried by hand (docs/compatibility.md). A test compares the two.
const TESTED: [Release; 3] = [OLDEST, Release { major: 1, minor: 7 }, Release { major: 2, minor: 1 }];
const TRIED: [Release; 1] = [Release { major: 2, minor: 3 }];

/// Checks the release of containerd, and returns it.
pub(super) fn containerd(report: &mut Report<'_>) -> Option<Release> {
    let installed = || if report.is_this_node() { Release::installed() } else { None };
    let release = report.node.release.or_else(installed);
    match release {
        Some(release) if release < OLDEST => report.fail(
            "containerd",
            format!("{release}: podshim is known to work from {OLDEST} on"),
            "install containerd 1.6 or later",
        ),
        Some(release) if TESTED.contains(&release) => report.ok("containerd", release.to_string()),
        Some(release) if TRIED.contains(&release) => {
            report.ok("containerd", format!("{release}: podshim was tried with it by hand only"));
        }
        Some(release) => report.warn(
            "containerd",
            format!("{release}: no release that podshim is tested with ({})", tested()),
            "try it on one node first: docs/compatibility.md, docs/questions.md",
        ),
        None => report.warn(
            "containerd",
            "which release it is cannot be seen: there is none in the PATH",
            "podshim doctor --containerd VERSION",
        ),
    }
    release
}

fn tested() -> String {
    let tested: Vec<_> = TESTED.iter().map(Release::to_string).collect();
    format!("{}; {} by hand", tested.join(", "), TRIED[0])
}

/// Checks for the OCI runtime of podshim's pods: the one that containerd's configuration names, else the node's file, else runc.
pub(super) fn oci_runtime(report: &mut Report<'_>, of_containerd: Option<String>) {
    const SUBJECT: &str = "OCI runtime";
    let of_node = super::system::node_of(report).oci_runtime().map(str::to_owned);
    let (name, source) = match (of_containerd, of_node) {
        (Some(name), _) => (name, ", by BinaryName in containerd's configuration".to_owned()),
        (None, Some(name)) => (name, format!(", by oci-runtime in {NODE_FILE}")),
        (None, None) => ("runc".to_owned(), String::new()),
    };
    let path = match name.starts_with('/') {
        true => Some(PathBuf::from(&name)).filter(|path| report.is_program(path)),
        false => report.program(&name),
    };
    match path {
        Some(path) => report.ok(SUBJECT, format!("{}{source}", version_of(report, &path))),
        None if name == "runc" && source.is_empty() && report.program("crun").is_some() => {
            report.fail(
                SUBJECT,
                "crun is in the PATH, and runc is not",
                "podshim install --oci-runtime crun",
            );
        }
        None => report.fail(SUBJECT, format!("{name} is not in the PATH{source}"), format!("install {name}")),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Each containerd of the page's table of tests is one that the doctor knows, and no other is.
    #[test]
    fn found_n20_the_doctor_knows_the_containerds_of_the_compatibility_page() {
        let page = include_str!("../../../../docs/compatibility.md");
        let table = page.split("<!-- written by hack/compatibility -->").nth(1).expect("the table");
        let table = table.split("<!-- end -->").next().expect("its end");
        let rows = table.lines().filter_map(|line| line.strip_prefix("| ")?.split(' ').next());
        let mut releases: Vec<_> = rows.filter_map(Release::parse).collect();
        releases.sort();
        releases.dedup();
        assert_eq!(releases, TESTED);
        for release in TRIED {
            assert!(page.contains(&format!("By hand: containerd {release}.")), "{release}");
        }
    }
}
