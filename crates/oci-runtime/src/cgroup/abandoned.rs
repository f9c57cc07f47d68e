//! The groups of a create that was cut off: the runtime died before it noted the container, so its `delete` knows of
//! none and leaves them. Owns their removal; a group that a runtime has on record is the runtime's to remove.

use std::{
    collections::BTreeSet,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    Cgroup, KillOutcome,
    files::{self, CgroupMount},
};

/// How often a group that is busy is tried again.
const BUSY_POLL: Duration = Duration::from_millis(5);

/// Removes the groups that `cgroups_path` of an OCI spec names, with the processes in them. No group is no error, and
/// neither is a relative path, which might mean somebody else's; but for `slice:prefix:name`, which names one container.
/// Where systemd runs no group has that name, and it removes the scope; elsewhere it is a path (DESIGN §5).
///
/// Ask the runtime for its own `delete` first. What is in the way at `deadline` stays.
///
/// # Errors
///
/// The system's answer for the first group that could not be removed.
pub async fn remove_abandoned(cgroups_path: &str, deadline: Instant) -> io::Result<()> {
    let is_absolute = cgroups_path.starts_with('/');
    let names_a_group = match is_absolute {
        true => Path::new(cgroups_path).file_name().is_some(),
        false => cgroups_path.split(':').count() == 3 && !cgroups_path.contains('/'),
    };
    if !names_a_group {
        return Ok(());
    }
    let mountinfo = fs::read_to_string("/proc/self/mountinfo")?;
    let mounts = files::cgroup_mounts(&mountinfo);
    let own = fs::read_to_string("/proc/self/cgroup")?;
    let places = mounts.iter().flat_map(|mount| match is_absolute {
        true => vec![mount.directory_of(cgroups_path)],
        false => places_of(cgroups_path, mount, &own),
    });
    let directories: BTreeSet<_> = places.filter(|directory| directory.is_dir()).collect();
    if directories.is_empty() {
        return Ok(());
    }
    let whole = is_absolute.then(|| Cgroup::locate(&membership_of(cgroups_path, &own), &mounts)).flatten();
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

/// Where runtimes make the group of a relative path: runc below its own, which is ours, with v2 beside that; crun at the
/// top.
fn places_of(path: &str, mount: &CgroupMount, own: &str) -> Vec<PathBuf> {
    let group = own.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, group) = (fields.next()?, fields.next()?);
        let is_it = match mount.is_v2 {
            true => controllers.is_empty(),
            false => controllers.split(',').any(|one| mount.controllers.iter().any(|other| one == other)),
        };
        is_it.then_some(Path::new(group))
    });
    let above = group.into_iter().flat_map(|group| [Some(group), group.parent()]).flatten();
    let places = above.chain([Path::new("/")]).map(|above| above.join(path));
    places.map(|place| mount.directory_of(&place.to_string_lossy())).collect()
}

fn remove(directories: &BTreeSet<PathBuf>) -> io::Result<()> {
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
        // A path may have colons too.
        .filter_map(|line| line.match_indices(':').nth(1).map(|(end, _)| &line[..end]))
        .map(|hierarchy| format!("{hierarchy}:{path}\n"))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    /// A new group in every tree; of a relative path below our own.
    fn make_group(path: &str) -> Vec<PathBuf> {
        let mountinfo = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let own = fs::read_to_string("/proc/self/cgroup").unwrap();
        let mounts = files::cgroup_mounts(&mountinfo);
        let directories = mounts.iter().map(|mount| match path.starts_with('/') {
            true => mount.directory_of(path),
            false => places_of(path, mount, &own).remove(0),
        });
        let made: Vec<_> = directories.filter(|directory| fs::create_dir(directory).is_ok()).collect();
        assert!(!made.is_empty(), "no cgroup can be made here");
        made
    }

    /// N3: a killed `runc create` leaves groups with its half-made init in them.
    #[tokio::test]
    async fn n3_the_groups_of_a_create_that_was_cut_off_are_removed_with_their_processes() {
        let id = std::process::id();
        for path in [format!("/podshim-abandoned-{id}"), format!("podshim.slice:abandoned:{id}")] {
            cut_off_and_removed(&path).await;
        }
    }

    #[expect(clippy::disallowed_methods, reason = "this process is no container's, and no reaper runs here")]
    async fn cut_off_and_removed(path: &str) {
        let directories = make_group(path);
        let mut child = Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap();
        for directory in &directories {
            // cpuset takes nobody before it has processors of its own.
            let _ = fs::write(directory.join("cgroup.procs"), child.id().to_string());
        }
        remove_abandoned(path, Instant::now() + Duration::from_secs(10)).await.unwrap();
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
        for path in
            ["", "/", "system.slice:podshim:id", "relative/id", "a:b:../c", "/podshim-never-made", "/.."]
        {
            remove_abandoned(path, Instant::now()).await.unwrap();
        }
    }
}
