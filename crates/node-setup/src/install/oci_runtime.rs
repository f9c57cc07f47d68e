//! Which OCI runtime the pods of podshim get on this node.
//!
//! Owns one line of the node's file; every other byte stays. Not a table in containerd's configuration: containerd 2.x starts no pod
//! with a user namespace on a runtime of another type that has options (CONTRACT §1.7), 1.6 passes none of them on, and this line
//! counts from the next pod on, without a restart. Writes no file.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use node_state::paths::NODE_FILE;

use super::files::{Content, FileChange};
use super::{InstallError, Layout};
use crate::node::PATH_OF_UNITS;

const KEY: &str = "oci-runtime";

/// The change of the node's file after which the pods of podshim run on that OCI runtime: a program's name, or an absolute path.
///
/// # Errors
/// The file cannot be read, or has a mistake, or containerd would not find the program.
pub fn choose(layout: &Layout, program: &str) -> Result<FileChange, InstallError> {
    if !places(program).iter().any(|path| is_program(layout, path)) {
        return Err(InstallError::NoOciRuntime(program.to_owned()));
    }
    let file = Path::new(NODE_FILE);
    let new = with(layout.read(file)?.as_deref(), program);
    pod_spec::Node::parse(&new).map_err(|error| InstallError::NodeFile(error.to_string()))?;
    Ok(layout.change(file.to_owned(), Content::Text(new))?)
}

/// Where a program of that name may be.
fn places(program: &str) -> Vec<PathBuf> {
    match program.starts_with('/') {
        true => vec![program.into()],
        false => PATH_OF_UNITS.iter().map(|directory| Path::new(directory).join(program)).collect(),
    }
}

fn is_program(layout: &Layout, path: &Path) -> bool {
    let metadata = layout.root.reach(path).and_then(|reached| std::fs::metadata(reached.path()));
    metadata.is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

/// The text with that line in the place of the one that it has, or at its end.
fn with(text: Option<&str>, program: &str) -> String {
    let line = format!("{KEY} = \"{program}\"\n");
    let text = text.unwrap_or_default();
    let is_own = |line: &str| line.split_once('=').is_some_and(|(key, _)| key.trim() == KEY);
    if !text.lines().any(is_own) {
        let end = if text.is_empty() || text.ends_with('\n') { "" } else { "\n" };
        return format!("{text}{end}{line}");
    }
    text.split_inclusive('\n').map(|old| if is_own(old) { line.as_str() } else { old }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_is_written_and_every_other_byte_stays() {
        let line = "oci-runtime = \"crun\"\n";
        for (before, after) in [
            (None, line.to_owned()),
            (Some("grace = \"5s\""), format!("grace = \"5s\"\n{line}")),
            (Some("# oci-runtime = \"x\"\n"), format!("# oci-runtime = \"x\"\n{line}")),
            (Some("oci-runtime=\"runc\" # mine\n# end"), format!("{line}# end")),
            (Some(line), line.to_owned()),
        ] {
            assert_eq!(with(before, "crun"), after, "{before:?}");
        }
    }
}
