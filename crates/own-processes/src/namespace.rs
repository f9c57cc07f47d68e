//! The namespaces that a sandbox joins, as files.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Opens a namespace by the path of a spec. Of another kind of file the join says so: a FIFO, which no one writes, would keep the
/// caller waiting here.
pub(super) fn open(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path)
}

/// The shim is in the node's.
pub(super) fn is_the_nodes_network(file: &File) -> io::Result<bool> {
    let (one, own) = (file.metadata()?, std::fs::metadata("/proc/self/ns/net")?);
    Ok((one.dev(), one.ino()) == (own.dev(), own.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fifo_is_no_namespace_and_does_not_keep_the_shim() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("fifo");
        nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
        let file = open(&path).unwrap();
        assert!(!is_the_nodes_network(&file).unwrap());
        assert!(nix::sched::setns(file, nix::sched::CloneFlags::CLONE_NEWNET).is_err());
    }
}
