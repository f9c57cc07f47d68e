//! Under which name a pod's counts are shown: that of its namespace, or one for all namespaces after the first two hundred.
//!
//! Owns the list of the namespaces that have a name of their own, of this boot. A name is given once and stays: a counter that
//! became less, as counts moved to another name, would be a restart for Prometheus. So a pod's name is decided when it
//! starts, and its entry has it.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;

use crate::entry::Entry;
use crate::replace::replace;
use crate::totals::{NAMESPACES, OTHERS, Totals, lock};
use control_api::text::printable;

/// The list's name below [`crate::paths::STATE_ROOT`]: a namespace on each line.
pub const PLACES: &str = "totals.namespaces";
const TEMPORARY: &str = ".totals.namespaces";

/// The name for the counts of a pod that starts in this namespace. If the list cannot be written, that of all others: then the
/// pod runs all the same.
pub fn place(root: &Path, namespace: &str) -> String {
    let name = printable(namespace);
    match has_place(root, &name) {
        Ok(true) => name,
        Ok(false) | Err(_) => OTHERS.to_owned(),
    }
}

fn has_place(root: &Path, namespace: &str) -> io::Result<bool> {
    // Without the lock: a name in the list stays there, and a full list takes no more.
    if let Some(listed) = read(root)?
        && (listed.contains(namespace) || listed.len() >= NAMESPACES)
    {
        return Ok(listed.contains(namespace));
    }
    let _lock = lock(root)?;
    let mut listed = match read(root)? {
        Some(listed) => listed,
        None => of_older_release(root)?,
    };
    if listed.len() < NAMESPACES && listed.insert(namespace.to_owned()) {
        write(root, &listed)?;
    }
    Ok(listed.contains(namespace))
}

/// The names under which a release without this list has shown counts.
fn of_older_release(root: &Path) -> io::Result<BTreeSet<String>> {
    let totals = Totals::read(root)?;
    let mut names: BTreeSet<_> = totals.namespaces.into_keys().filter(|name| name != OTHERS).collect();
    for entry in Entry::list(root)?.into_iter().filter(|entry| entry.counted_as.is_none()) {
        if names.len() < NAMESPACES {
            names.insert(entry.pod_namespace);
        }
    }
    Ok(names)
}

fn read(root: &Path) -> io::Result<Option<BTreeSet<String>>> {
    match fs::read_to_string(root.join(PLACES)) {
        Ok(text) => Ok(Some(text.lines().map(str::to_owned).collect())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn write(root: &Path, names: &BTreeSet<String>) -> io::Result<()> {
    let text: String = names.iter().map(|name| format!("{name}\n")).collect();
    replace(&root.join(PLACES), &root.join(TEMPORARY), text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_two_hundred_namespaces_have_a_name_of_their_own() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        for number in 0..NAMESPACES {
            assert_eq!(place(root, &format!("test-{number}")), format!("test-{number}"));
        }
        assert_eq!(place(root, "one-more"), OTHERS);
        assert_eq!(place(root, "test-7"), "test-7");
    }

    #[test]
    fn without_the_list_the_name_is_that_of_all_others() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join(PLACES)).unwrap();
        assert_eq!(place(root.path(), "shop"), OTHERS);
        let purged = root.path().join("purged");
        assert_eq!(place(&purged, "shop"), OTHERS);
        assert!(!purged.exists());
    }
}
