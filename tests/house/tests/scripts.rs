//! shellcheck warns of nothing in the scripts of hack/, dist/ and .ci/: an unset variable, an unquoted path, a test that is always true.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use house::root;

/// Every file below a folder that a shell runs, or that such a file reads.
fn scripts(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").path()) {
        if entry.is_symlink() {
            continue;
        }
        if entry.is_dir() {
            scripts(&entry, found);
        } else if fs::read_to_string(&entry).is_ok_and(|text| is_script(&text)) {
            found.push(entry);
        }
    }
}

fn is_script(text: &str) -> bool {
    let first = text.lines().next().unwrap_or_default();
    let names_a_shell =
        first.starts_with("#!") && ["bash", "sh", "dash"].iter().any(|shell| first.ends_with(shell));
    names_a_shell || text.lines().take(5).any(|line| line.starts_with("# shellcheck shell="))
}

#[test]
#[allow(clippy::disallowed_methods, reason = "a test runs the program as a person does")]
fn shellcheck_warns_of_nothing() {
    let mut all = Vec::new();
    for folder in ["hack", "dist", ".ci"] {
        scripts(&root().join(folder), &mut all);
    }
    assert!(all.len() > 50, "{} scripts", all.len());
    let checked = Command::new("shellcheck")
        .args(["--external-sources", "--severity=warning", "--format=gcc"])
        .args(&all)
        .current_dir(root())
        .output()
        .expect("shellcheck, which hack/setup --for tests installs");
    assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stdout));
}
