//! The groups of a create that was cut off: the runtime died before it noted the container, so its `delete` knows of
//! none and leaves them. Owns their removal; a group that a runtime has on record is the runtime's to remove.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::time::Instant;

use super::{Cgroup, KillOutcome, files};

/// How often a group that is busy is tried again.
const BUSY_POLL: Duration = Duration::from_millis(5);

/// Removes the groups that `cgroups_path` of an OCI spec names, with the processes in them. No group is no error, and
/// neither is a path that a runtime does not take as it is: relative ones, and systemd's `slice:prefix:name`, where
/// systemd removes the scope.
///
/// Ask the runtime for its own `delete` first. What is in the way at `deadline` stays.
///
/// # Errors
///
/// The system's answer for the first group that could not be removed.
pub async fn remove_abandoned(cgroups_path: &str, deadline: Instant) -> io::Result<()> {
    if Path::new(cgroups_path).file_name().is_none() || !cgroups_path.starts_with('/') {
        return Ok(());
    }
    let mountinfo = fs::read_to_string("/proc/self/mountinfo")?;
    let mounts = files::cgroup_mounts(&mountinfo);
    let directories: Vec<_> = mounts
        .iter()
        .map(|mount| mount.directory_of(cgroups_path))
        .filter(|directory| directory.is_dir())
        .collect();
    if directories.is_empty() {
        return Ok(());
    }
    let own = fs::read_to_string("/proc/self/cgroup")?;
    let whole = Cgroup::locate(&membership_of(cgroups_path, &own), &mounts);
    // And each by itself: a runtime puts its process into one after another.
    let parts = directories.iter().cloned().map(Cgroup::V2);
    let cgroups: Vec<_> = whole.into_iter().chain(parts).collect();
    loop {
        for cgroup in &cgroups {
            if let KillOutcome::Remaining(pids) = cgroup.kill_remaining(deadline).await {
                return Err(io::Error::new(
                    io::ErrorKind::ResourceBusy,
                    format!("cgroup {cgroups_path}: processes {pids:?} are still in it"),
                ));
            }
        }
        match remove(&directories) {
            // Busy without a member: a process that the kernel is taking apart, or one that its dead runtime had been
            // putting in as it died.
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < deadline => {
                tokio::time::sleep_until(deadline.min(Instant::now() + BUSY_POLL)).await;
            }
            result => return result,
        }
    }
}

fn remove(directories: &[PathBuf]) -> io::Result<()> {
    for directory in directories {
        match fs::remove_dir(directory) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(io::Error::new(error.kind(), format!("{}: {error}", directory.display())));
            }
            _ => {}
        }
    }
    Ok(())
}

/// A `/proc/<pid>/cgroup` of a process that is in `path` everywhere.
fn membership_of(path: &str, own: &str) -> String {
    own.lines()
        .filter_map(|line| line.rsplit_once(':'))
        .map(|(hierarchy, _)| format!("{hierarchy}:{path}\n"))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// A new group in every tree.
    fn make_group(path: &str) -> Vec<PathBuf> {
        let mountinfo = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let mounts = files::cgroup_mounts(&mountinfo);
        let directories = mounts.iter().map(|mount| mount.directory_of(path));
        let made: Vec<_> = directories.filter(|directory| fs::create_dir(directory).is_ok()).collect();
        assert!(!made.is_empty(), "no cgroup can be made here");
        made
    }

    /// N3: a killed `runc create` leaves groups with its half-made init in them.
    #[tokio::test]
    #[expect(clippy::disallowed_methods, reason = "this process is no container's, and no reaper runs here")]
    async fn n3_the_groups_of_a_create_that_was_cut_off_are_removed_with_their_processes() {
        let path = format!("/podshim-abandoned-{}", std::process::id());
        let directories = make_group(&path);
        let mut child = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
        for directory in &directories {
            // cpuset takes nobody before it has processors of its own.
            let _ = fs::write(directory.join("cgroup.procs"), child.id().to_string());
        }
        remove_abandoned(&path, Instant::now() + Duration::from_secs(10)).await.unwrap();
        assert!(!child.wait().unwrap().success());
        for directory in directories {
            assert!(!directory.exists(), "{}", directory.display());
        }
    }

    /// N3: for a moment the kernel keeps a group whose last process has been killed, and says that it is busy: here because
    /// of a group in it.
    #[tokio::test]
    async fn n3_a_group_that_is_busy_for_a_moment_is_removed_then() {
        let path = format!("/podshim-busy-{}", std::process::id());
        let directories = make_group(&path);
        let inner = directories[0].join("inner");
        fs::create_dir(&inner).unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        let free = async {
            tokio::time::sleep(BUSY_POLL * 4).await;
            fs::remove_dir(&inner).unwrap();
        };
        let (removed, ()) = tokio::join!(remove_abandoned(&path, deadline), free);
        removed.unwrap();
        assert!(directories.iter().all(|directory| !directory.exists()));
        // What stays busy is an error with its name.
        let directories = make_group(&path);
        fs::create_dir(directories[0].join("inner")).unwrap();
        let error = remove_abandoned(&path, Instant::now() + BUSY_POLL).await.unwrap_err();
        assert!(error.to_string().contains(&path), "{error}");
        for directory in [directories[0].join("inner")].iter().chain(&directories) {
            let _ = fs::remove_dir(directory);
        }
    }

    /// Nothing that the path of a container cannot mean is touched.
    #[tokio::test]
    async fn a_path_that_names_no_group_of_its_own_is_left_alone() {
        for path in ["", "/", "system.slice:podshim:id", "relative/id", "/podshim-never-made", "/.."] {
            remove_abandoned(path, Instant::now()).await.unwrap();
        }
    }
}
