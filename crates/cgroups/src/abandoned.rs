//! Removes the groups of an interrupted create: the runtime died before it recorded the container, so its `delete` does
//! not know of the groups and leaves them. A group that a runtime has on record is never touched here: the runtime
//! removes it.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use threads::helper_thread;
use tokio::time::Instant;

use super::files::{self, CgroupMount};
use super::group::Cgroup;
use super::kill::KillOutcome;

/// How often the removal of a busy group is retried.
const BUSY_POLL: Duration = Duration::from_millis(5);

/// Removes the groups that `cgroups_path` of an OCI spec names, with the processes in them. Missing groups are no error.
/// A relative path is ignored, because it might mean another container's group; except `slice:prefix:name`, which names
/// one container. If systemd runs, no group has that name and systemd removes the scope; otherwise it is a path (DESIGN
/// §5).
///
/// Call the runtime's own `delete` first. What cannot be removed by `deadline` stays.
///
/// # Errors
///
/// The system's error for the first group that could not be removed.
pub async fn remove_abandoned(cgroups_path: &str, deadline: Instant) -> io::Result<()> {
    let Some(found) = Found::at(cgroups_path)? else { return Ok(()) };
    let cgroups = found.cgroups(cgroups_path);
    loop {
        for cgroup in &cgroups {
            if let KillOutcome::Remaining(pids) = cgroup.kill_remaining(deadline).await {
                return Err(io::Error::new(
                    io::ErrorKind::ResourceBusy,
                    format!("cgroup {cgroups_path}: processes {pids:?} are still in it"),
                ));
            }
            // One whose processes could not be listed is not removed while it has any.
        }
        match remove(&found.directories).await {
            // Busy without a member: the kernel is still removing a process, or the runtime died while it was putting
            // one in.
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy && Instant::now() < deadline => {
                remove_inner(&found.directories).await;
                tokio::time::sleep_until(deadline.min(Instant::now() + BUSY_POLL)).await;
            }
            result => return result,
        }
    }
}

/// As [`remove_abandoned`], but only groups without a process and without groups of their own: one that is in use is another
/// container's, and stays.
///
/// # Errors
///
/// The system's error for the first group that could not be removed.
pub async fn remove_empty(cgroups_path: &str) -> io::Result<()> {
    let Some(found) = Found::at(cgroups_path)? else { return Ok(()) };
    match remove(&found.directories).await {
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Ok(()),
        result => result,
    }
}

/// The groups that a path names.
pub(super) struct Found {
    pub(super) directories: BTreeSet<PathBuf>,
    mounts: Vec<CgroupMount>,
    /// The groups of this process, as the kernel lists them.
    own: String,
}

impl Found {
    /// `None` if the path names no container's own group, or none is there.
    pub(super) fn at(cgroups_path: &str) -> io::Result<Option<Self>> {
        let is_absolute = cgroups_path.starts_with('/');
        let names_a_group = match is_absolute {
            true => Path::new(cgroups_path).file_name().is_some(),
            false => cgroups_path.split(':').count() == 3 && !cgroups_path.contains('/'),
        };
        if !names_a_group {
            return Ok(None);
        }
        let mounts = files::cgroup_mounts(&fs::read_to_string("/proc/self/mountinfo")?);
        let own = fs::read_to_string("/proc/self/cgroup")?;
        Ok(Self::below(mounts, own, cgroups_path))
    }

    fn below(mounts: Vec<CgroupMount>, own: String, cgroups_path: &str) -> Option<Self> {
        let is_absolute = cgroups_path.starts_with('/');
        let places = mounts.iter().flat_map(|mount| match is_absolute {
            true => vec![mount.directory_of(cgroups_path)],
            false => places_of(cgroups_path, mount, &own),
        });
        // A hierarchy may be mounted at several places, and not all of them for writing: the first is the one where its groups
        // were made.
        let mut seen = BTreeSet::new();
        let is_another = |directory: &PathBuf| {
            fs::metadata(directory).is_ok_and(|it| it.is_dir() && seen.insert((it.dev(), it.ino())))
        };
        let directories: BTreeSet<_> = places.filter(is_another).collect();
        (!directories.is_empty()).then_some(Self { directories, mounts, own })
    }

    fn cgroups(&self, cgroups_path: &str) -> Vec<Cgroup> {
        let is_absolute = cgroups_path.starts_with('/');
        let membership = is_absolute.then(|| membership_of(cgroups_path, &self.own));
        let whole = membership.and_then(|membership| Cgroup::locate(&membership, &self.mounts));
        // Each hierarchy by itself too: a runtime puts its process into one after the other.
        let parts = self.directories.iter().cloned().map(Cgroup::V2);
        whole.into_iter().chain(parts).collect()
    }
}

/// Where runtimes make the group of a relative path: runc below its own group, which is the shim's (on v2, beside it);
/// crun below the root group.
fn places_of(path: &str, mount: &CgroupMount, own: &str) -> Vec<PathBuf> {
    let group = own.lines().find_map(|line| {
        let mut fields = line.splitn(3, ':').skip(1);
        let (controllers, group) = (fields.next()?, fields.next()?);
        let is_it = match mount.is_v2() {
            true => controllers.is_empty(),
            false => controllers.split(',').any(|one| mount.controllers.iter().any(|other| one == other)),
        };
        is_it.then_some(Path::new(group))
    });
    let above = group.into_iter().flat_map(|group| [Some(group), group.parent()]).flatten();
    let places = above.chain([Path::new("/")]).map(|above| above.join(path));
    places.map(|place| mount.directory_of(&place.to_string_lossy())).collect()
}

/// On a thread: each waits for a lock that the node's groups have in common, and while 200 pods ended at once the twelve of a v1
/// group took more than a second. Where there can be none, here.
async fn remove(directories: &BTreeSet<PathBuf>) -> io::Result<()> {
    let theirs = directories.clone();
    let removed = helper_thread::run("groups", move || Ok(remove_each(&theirs))).await;
    removed.unwrap_or_else(|_| remove_each(directories))
}

fn remove_each(directories: &BTreeSet<PathBuf>) -> io::Result<()> {
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

/// Removes the groups inside of these, which runc removes too. One that cannot be removed keeps the outer one busy.
async fn remove_inner(directories: &BTreeSet<PathBuf>) {
    let theirs = directories.clone();
    let removed = helper_thread::run("groups", move || {
        remove_inner_groups(&theirs);
        Ok(())
    });
    // The caller tries again.
    let _ = removed.await;
}

/// The same at once, for a thread of its own.
pub(super) fn remove_inner_groups(directories: &BTreeSet<PathBuf>) {
    let mut inner = Vec::new();
    directories.iter().for_each(|directory| list_inner(directory, &mut inner));
    for directory in inner {
        let _ = fs::remove_dir(directory);
    }
}

/// The innermost first.
fn list_inner(directory: &Path, inner: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            list_inner(&entry.path(), inner);
            inner.push(entry.path());
        }
    }
}

/// The text of `/proc/<pid>/cgroup` for a process that is in `path` in every hierarchy.
fn membership_of(path: &str, own: &str) -> String {
    own.lines()
        // A path may contain colons too.
        .filter_map(|line| line.match_indices(':').nth(1).map(|(end, _)| &line[..end]))
        .map(|hierarchy| format!("{hierarchy}:{path}\n"))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use tokio::task::yield_now;

    use super::*;

    /// An agent has the node's hierarchies once more, for reading: a group that is removed through one of them fails there.
    #[test]
    fn a_hierarchy_that_is_mounted_twice_is_used_where_it_was_mounted_first() {
        let directory = tempfile::tempdir().unwrap();
        let [node, agent] = ["node", "agent"].map(|name| directory.path().join(name));
        fs::create_dir_all(node.join("pod1/a")).unwrap();
        std::os::unix::fs::symlink(&node, &agent).unwrap();
        let mounts = format!(
            "1 0 0:1 / {} rw - cgroup2 cgroup2 rw\n2 0 0:1 / {} ro - cgroup2 cgroup2 rw\n",
            node.display(),
            agent.display()
        );
        let mounts = files::cgroup_mounts(&mounts);
        assert_eq!(mounts.len(), 2);
        let found = Found::below(mounts, "0::/\n".to_owned(), "/pod1/a").unwrap();
        assert_eq!(found.directories, BTreeSet::from([node.join("pod1/a")]));
    }

    /// Makes a new group in every hierarchy; for a relative path below this process's own.
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
            // cpuset accepts no process before it has processors of its own.
            let _ = fs::write(directory.join("cgroup.procs"), child.id().to_string());
        }
        remove_abandoned(path, Instant::now() + Duration::from_secs(10)).await.unwrap();
        assert!(!child.wait().unwrap().success());
        for directory in directories {
            assert!(!directory.exists(), "{}", directory.display());
        }
    }

    /// N3: after its last process was killed, the kernel keeps a group for a moment and reports it as busy. The test
    /// gets the same effect with a mount on the group.
    #[tokio::test]
    async fn n3_a_group_that_is_busy_for_a_moment_is_removed_then() {
        let path = format!("/podshim-busy-{}", std::process::id());
        let directories = make_group(&path);
        let keep_busy = || {
            let (none, flags) = (None::<&str>, nix::mount::MsFlags::empty());
            nix::mount::mount(Some("tmpfs"), &directories[0], Some("tmpfs"), flags, none).unwrap();
        };
        keep_busy();
        let deadline = Instant::now() + Duration::from_secs(10);
        let free = async {
            tokio::time::sleep(BUSY_POLL * 4).await;
            nix::mount::umount(&directories[0]).unwrap();
        };
        let (removed, ()) = tokio::join!(remove_abandoned(&path, deadline), free);
        removed.unwrap();
        assert!(directories.iter().all(|directory| !directory.exists()));
        // For a group that stays busy, the error names it.
        make_group(&path);
        keep_busy();
        let error = remove_abandoned(&path, Instant::now() + BUSY_POLL).await.unwrap_err();
        assert!(error.to_string().contains(&path), "{error}");
        nix::mount::umount(&directories[0]).unwrap();
        for directory in &directories {
            let _ = fs::remove_dir(directory);
        }
    }

    #[tokio::test]
    async fn groups_inside_of_it_go_too() {
        let path = format!("/podshim-nested-{}", std::process::id());
        let directories = make_group(&path);
        for directory in &directories {
            fs::create_dir_all(directory.join("a/b")).unwrap();
            fs::create_dir(directory.join("c")).unwrap();
        }
        remove_abandoned(&path, Instant::now() + Duration::from_secs(10)).await.unwrap();
        assert!(directories.iter().all(|directory| !directory.exists()));
    }

    /// A removal that keeps the thread to itself lets nothing else run, however often it is tried. One on a helper may be over before
    /// this thread looks, if the kernel gives the helper its turn first.
    #[tokio::test]
    async fn the_shim_serves_its_pod_while_groups_are_removed() {
        let mut rounds = 0;
        for number in 0..20 {
            let path = format!("/podshim-between-{}-{number}", std::process::id());
            make_group(&path);
            let others = async {
                loop {
                    rounds += 1;
                    yield_now().await;
                }
            };
            tokio::select! {
                biased;
                removed = remove_abandoned(&path, Instant::now()) => removed.unwrap(),
                () = others => {}
            }
        }
        assert!(rounds > 0);
    }

    /// A path that cannot name a container's own group is ignored.
    #[tokio::test]
    async fn a_path_that_names_no_group_of_its_own_is_left_alone() {
        for path in
            ["", "/", "system.slice:podshim:id", "relative/id", "a:b:../c", "/podshim-never-made", "/.."]
        {
            remove_abandoned(path, Instant::now()).await.unwrap();
            remove_empty(path).await.unwrap();
        }
    }

    #[tokio::test]
    async fn a_group_with_another_one_in_it_is_not_empty() {
        let path = format!("/podshim-empty-{}", std::process::id());
        let directories = make_group(&path);
        let inner = directories[0].join("inner");
        fs::create_dir(&inner).unwrap();
        remove_empty(&path).await.unwrap();
        assert!(inner.exists());
        fs::remove_dir(&inner).unwrap();
        remove_empty(&path).await.unwrap();
        assert!(directories.iter().all(|directory| !directory.exists()));
    }
}
