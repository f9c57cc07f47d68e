//! Where a new server runs: its cgroup, its OOM score, its core scheduling group (CONTRACT §8).
//!
//! Everything here changes the calling process, which is `start`; the server inherits it through the fork.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use thiserror::Error;

const CGROUP_ROOT: &str = "/sys/fs/cgroup";
/// linux/prctl.h, not in libc.
const PR_SCHED_CORE: libc::c_int = 62;
const PR_SCHED_CORE_CREATE: libc::c_ulong = 1;
const PIDTYPE_PGID: libc::c_ulong = 2;

/// Why the server cannot be placed as configured.
#[derive(Debug, Error)]
pub enum PlacementError {
    /// The cgroup of the option does not exist.
    #[error(
        "runtime option ShimCgroup: no cgroup {cgroup:?} under {CGROUP_ROOT}: create it, or remove the option"
    )]
    NoCgroup {
        /// The option's value.
        cgroup: String,
    },
    /// The cgroup refuses the process.
    #[error("runtime option ShimCgroup: {path}: {source}", path = path.display())]
    Cgroup {
        /// The file that was written to.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The kernel does not support core scheduling.
    #[error("SCHED_CORE is set and core scheduling is not possible: {source}")]
    SchedCore {
        /// The kernel's error.
        source: io::Error,
    },
}

/// Moves this process into an existing cgroup: in the unified hierarchy, or in every v1 hierarchy that has it.
///
/// # Errors
///
/// [`PlacementError`] if no hierarchy has the cgroup, or one that has it refuses the process.
pub fn enter_cgroup(cgroup: &str) -> Result<(), PlacementError> {
    enter_cgroup_under(Path::new(CGROUP_ROOT), cgroup)
}

fn enter_cgroup_under(root: &Path, cgroup: &str) -> Result<(), PlacementError> {
    let missing = || PlacementError::NoCgroup { cgroup: cgroup.to_owned() };
    let relative = Path::new(cgroup.trim_start_matches('/'));
    if relative.components().any(|part| !matches!(part, Component::Normal(_))) {
        return Err(missing());
    }
    let hierarchies = if root.join("cgroup.controllers").exists() {
        vec![root.to_owned()]
    } else {
        // `cpu` and `cpuacct` are links to one directory; the links are skipped, so it is not entered twice.
        let entries = fs::read_dir(root).map_err(|_| missing())?;
        entries
            .flatten()
            .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
            .map(|entry| entry.path())
            .collect()
    };
    let mut entered = 0;
    for path in hierarchies.iter().map(|hierarchy| hierarchy.join(relative).join("cgroup.procs")) {
        if path.exists() {
            // 0 means the writing process.
            fs::write(&path, "0").map_err(|source| PlacementError::Cgroup { path, source })?;
            entered += 1;
        }
    }
    if entered == 0 { Err(missing()) } else { Ok(()) }
}

/// Raises this process's OOM score to containerd's plus one: containerd can be restarted under its pods, so it is worth
/// more than a shim, and a shim is worth more than its containers. Without the permission nothing changes.
pub fn adjust_oom_score() {
    let _ = containerd_shim::cgroup::adjust_oom_score(std::process::id());
}

/// Gives this process a core scheduling group of its own if containerd asks for it (`SCHED_CORE`).
///
/// # Errors
///
/// [`PlacementError::SchedCore`] if the kernel does not support it: the setting promises isolation.
pub fn separate_core() -> Result<(), PlacementError> {
    if std::env::var_os("SCHED_CORE").is_none_or(|value| value.is_empty()) {
        return Ok(());
    }
    // SAFETY: prctl with integers only; this operation does not use the address of the cookie.
    let result = unsafe {
        libc::prctl(PR_SCHED_CORE, PR_SCHED_CORE_CREATE, 0 as libc::c_ulong, PIDTYPE_PGID, 0 as libc::c_ulong)
    };
    if result == 0 { Ok(()) } else { Err(PlacementError::SchedCore { source: io::Error::last_os_error() }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_files(paths: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for path in paths {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        root
    }

    #[test]
    fn a_unified_hierarchy_is_entered_once() {
        let root = with_files(&["cgroup.controllers", "shims/cgroup.procs", "memory/shims/cgroup.procs"]);
        enter_cgroup_under(root.path(), "/shims").unwrap();
        assert_eq!(fs::read_to_string(root.path().join("shims/cgroup.procs")).unwrap(), "0");
        assert_eq!(fs::read_to_string(root.path().join("memory/shims/cgroup.procs")).unwrap(), "");
    }

    #[test]
    fn every_v1_controller_that_has_it_is_entered() {
        let root = with_files(&["cpu,cpuacct/a/b/cgroup.procs", "memory/a/b/cgroup.procs", "pids/x"]);
        std::os::unix::fs::symlink("cpu,cpuacct", root.path().join("cpu")).unwrap();
        enter_cgroup_under(root.path(), "a/b").unwrap();
        for controller in ["cpu,cpuacct", "memory"] {
            assert_eq!(
                fs::read_to_string(root.path().join(controller).join("a/b/cgroup.procs")).unwrap(),
                "0"
            );
        }
    }

    #[test]
    fn a_cgroup_that_is_not_there_is_named() {
        let root = with_files(&["cgroup.controllers", "x/cgroup.procs"]);
        for cgroup in ["/none", "../x", "/a/../x"] {
            let error = enter_cgroup_under(root.path(), cgroup).unwrap_err().to_string();
            assert!(
                error.starts_with(&format!("runtime option ShimCgroup: no cgroup {cgroup:?}")),
                "{error}"
            );
        }
    }
}
