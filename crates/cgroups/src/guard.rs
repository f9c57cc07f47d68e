//! Keeps the files open without which a container could not be watched and ended, from before its program runs on.
//!
//! A process takes a lease for reading only while the file is not open for writing, and one for writing only while it is not open at
//! all. So as long as podshim has a file open, no process can keep podshim from opening it once more, nor any other reader of the node,
//! as cAdvisor. Only opens; never reads or writes.

#[cfg(test)]
mod tests;

use std::fs::{File, OpenOptions};
use std::path::Path;

use threads::at_once;
use tracing::debug;

use super::group::Cgroup;

/// What podshim reads: who is in the groups, OOM kills, and the figures for which a node evicts pods. Without one of the others, as the
/// limits or what disks have done, a container has no such figure.
const READ_V1: [(&str, &str); 5] = [
    ("memory", "memory.oom_control"),
    ("memory", "memory.usage_in_bytes"),
    ("memory", "memory.stat"),
    ("cpuacct", "cpuacct.usage"),
    ("pids", "pids.current"),
];
const READ_V2: [&str; 7] = [
    "cgroup.procs",
    "cgroup.events",
    "memory.events",
    "memory.current",
    "memory.stat",
    "cpu.stat",
    "pids.current",
];
/// What podshim writes too.
const WRITTEN_V1: &str = "freezer.state";
const WRITTEN_V2: [&str; 2] = ["cgroup.freeze", "cgroup.kill"];

/// The open files of one container's groups. They are closed with it.
#[derive(Debug)]
pub struct Guard {
    _files: Vec<File>,
}

impl Guard {
    /// A file that is not there, or that cannot be opened at once, is left out.
    pub fn of(cgroup: &Cgroup) -> Self {
        let mut files = Vec::new();
        let mut keep = |directory: &Path, file: &str, options: &mut OpenOptions| match at_once::open(
            &directory.join(file),
            options,
        ) {
            Ok(file) => files.push(file),
            Err(error) => debug!(%error, directory = %directory.display(), file, "cannot be kept open"),
        };
        let (read, written) = (&mut File::options(), &mut File::options());
        let (read, written) = (read.read(true), written.write(true));
        match cgroup {
            Cgroup::V1(groups) => {
                for (controller, file) in READ_V1 {
                    let group = match controller {
                        "memory" => &groups.memory,
                        "cpuacct" => &groups.cpuacct,
                        _ => &groups.pids,
                    };
                    if let Some(group) = group {
                        keep(group, file, read);
                    }
                }
                if let Some(group) = groups.process_directory() {
                    keep(group, "cgroup.procs", read);
                }
                if let Some(group) = &groups.freezer {
                    keep(group, WRITTEN_V1, written);
                }
            }
            Cgroup::V2(group) => {
                READ_V2.into_iter().for_each(|file| keep(group, file, read));
                WRITTEN_V2.into_iter().for_each(|file| keep(group, file, written));
            }
        }
        Self { _files: files }
    }
}
