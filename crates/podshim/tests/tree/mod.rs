//! All files below a directory, to be compared with what they were before.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Every file with its content, and every link with its target. A socket has no content.
pub fn files(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let (mut files, mut directories) = (BTreeMap::new(), vec![directory.to_owned()]);
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(directory).expect("a directory") {
            let path = entry.expect("an entry").path();
            if path.is_symlink() {
                let target = fs::read_link(&path).expect("a link").into_os_string().into_encoded_bytes();
                files.insert(path, target);
            } else if path.is_dir() {
                directories.push(path);
            } else {
                files.insert(path.clone(), fs::read(&path).unwrap_or_default());
            }
        }
    }
    files
}
