//! The groups that a new process of a container enters: all in which the container's init is, as the OCI runtime's exec does.
//!
//! Owns which these are, and their order. Enters none: the process does that itself.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use nix::unistd::Pid;
use threads::at_once;

use super::files::{MOUNT_POINT, cgroup_mounts};
use super::group::Cgroup;

/// Where a new process of a container goes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entrance {
    /// v2, also beside v1: the container's group; then, if it is another one, that of its init: beside groups below it no process
    /// may be.
    pub groups: Vec<PathBuf>,
    /// v1: the files to which the process writes itself.
    pub files: Vec<PathBuf>,
}

impl Entrance {
    /// That of a container whose init runs.
    ///
    /// # Errors
    /// `NotFound` if the init is gone, or a hierarchy of controllers is mounted nowhere: a process outside of one of its container's groups
    /// would be outside of what it limits.
    pub fn of(cgroup: &Cgroup, init: Pid) -> io::Result<Self> {
        let membership = at_once::read(format!("/proc/{init}/cgroup"))?;
        let own = fs::read_to_string("/proc/self/cgroup")?;
        Self::between(cgroup, &membership, &own)
    }

    /// From the groups of `own` to those of `membership`, both as `/proc/<pid>/cgroup` says it.
    fn between(cgroup: &Cgroup, membership: &str, own: &str) -> io::Result<Self> {
        let (mut entrance, mut last) = (Self::default(), Vec::new());
        for line in membership.lines().filter(|line| !own.lines().any(|own| own == *line)) {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
            let below = path.trim_start_matches('/');
            match (controllers, cgroup) {
                ("", Cgroup::V2(group)) => {
                    let of_init = Path::new(MOUNT_POINT).join(below);
                    entrance.groups.push(group.clone());
                    entrance.groups.extend(Some(of_init).filter(|of_init| of_init != group));
                }
                ("", Cgroup::V1(_)) => {
                    let unified = Path::new(MOUNT_POINT).join("unified").join(below);
                    entrance.groups.extend(Some(unified).filter(|group| group.is_dir()));
                }
                (controllers, _) => {
                    // By `tasks`: a thread that moves itself takes no lock of all forks (Linux 5.5).
                    let file = directory_of(controllers, path)?.map(|directory| directory.join("tasks"));
                    // A process that is frozen, or waits for its quota, must not keep the kernel's lock for the next group.
                    let waits = controllers.split(',').any(|name| name == "cpu" || name == "freezer");
                    if waits { last.extend(file) } else { entrance.files.extend(file) }
                }
            }
        }
        entrance.files.append(&mut last);
        Ok(entrance)
    }
}

/// The group of v1 of that path. `None` for a hierarchy without controllers that is mounted nowhere, such as systemd's own.
fn directory_of(controllers: &str, path: &str) -> io::Result<Option<PathBuf>> {
    let name = controllers.strip_prefix("name=");
    let customary = Path::new(MOUNT_POINT).join(name.unwrap_or(controllers));
    if customary.join("tasks").exists() {
        return Ok(Some(customary.join(path.trim_start_matches('/'))));
    }
    if name.is_some() {
        return Ok(None);
    }
    let mounts = cgroup_mounts(&fs::read_to_string("/proc/self/mountinfo")?);
    let first = controllers.split(',').next().unwrap_or_default();
    let mount = mounts.iter().find(|mount| mount.controllers.iter().any(|name| name == first));
    let mount = mount.ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::NotFound,
            format!("the control groups of {controllers} are mounted nowhere"),
        )
    })?;
    Ok(Some(mount.directory_of(path)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::v1::Hierarchies;

    #[test]
    fn a_group_of_v2_is_followed_by_that_of_its_init() {
        let group = Cgroup::V2("/sys/fs/cgroup/pod/app".into());
        let between = |membership: &str, own: &str| Entrance::between(&group, membership, own).unwrap();
        let groups = |paths: &[&str]| Entrance {
            groups: paths.iter().map(PathBuf::from).collect(),
            files: Vec::new(),
        };
        assert_eq!(between("0::/pod/app\n", "0::/pod\n"), groups(&["/sys/fs/cgroup/pod/app"]));
        let below = groups(&["/sys/fs/cgroup/pod/app", "/sys/fs/cgroup/pod/app/init.scope"]);
        assert_eq!(between("0::/pod/app/init.scope\n", "0::/pod\n"), below);
        // In the groups of the shim nothing is to be entered.
        assert_eq!(between("0::/pod\n", "0::/pod\n"), Entrance::default());
    }

    /// Also those with a name of their own, and v2 beside v1: all that this machine has.
    #[test]
    fn no_group_of_v1_is_left_out_and_those_where_a_process_waits_come_last() {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap();
        let cgroup = Cgroup::V1(Box::new(Hierarchies::locate("", &[])));
        assert_eq!(Entrance::between(&cgroup, &own, &own).unwrap(), Entrance::default());
        let roots: String = own
            .lines()
            .filter_map(|line| line.rsplit_once(':'))
            .map(|(hierarchy, _)| format!("{hierarchy}:/\n"))
            .collect();
        let entrance = Entrance::between(&cgroup, &roots, "").unwrap();
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let below_top = |kind: &str| {
            mounts.lines().filter(|line| line.contains(" /sys/fs/cgroup/") && line.contains(kind)).count()
        };
        assert_eq!(entrance.files.len(), below_top(" - cgroup "));
        assert_eq!(entrance.groups.len(), below_top(" - cgroup2 "));
        let nowhere = Entrance::between(&cgroup, "1:no_such_controller:/app\n", "").unwrap_err();
        assert_eq!(nowhere.to_string(), "the control groups of no_such_controller are mounted nowhere");
        if let Some(last) = entrance.files.last() {
            let last = last.to_string_lossy();
            assert!(last.contains("cpu") || last.contains("freezer"), "{last}");
        }
    }
}
