//! What a container's control groups have counted, over all its processes (R6): an id's counters never fall.
//!
//! Owns the last reading, and the sum of the groups before this one. Where the group is kept over a restart there is none.

use std::path::PathBuf;

use cgroups::{Cgroup, Stats};

/// The statistics of one container.
#[derive(Debug, Default)]
pub(crate) struct GroupCounts {
    /// Which group `last` is of.
    group: Option<(PathBuf, u64)>,
    /// The last numbers of that group. They are answered when it is gone.
    last: Option<Box<Stats>>,
    earlier: Option<Box<Stats>>,
}

impl GroupCounts {
    /// A new process is in this group: in the same one as the process before, or in a new one that counts from 0.
    pub(crate) fn group_is(&mut self, cgroup: Option<&Cgroup>) {
        let group = cgroup.and_then(Cgroup::identity);
        if group == self.group && group.is_some() {
            return;
        }
        if let Some(last) = self.last.take() {
            self.earlier = Some(match self.earlier.take() {
                Some(earlier) => Box::new(last.after(&earlier)),
                None => last,
            });
        }
        self.group = group;
    }

    /// The numbers of now, with those of earlier groups. `None` where there never was a group.
    pub(crate) fn read(&mut self, cgroup: Option<&Cgroup>) -> Option<Stats> {
        if let Some(cgroup) = cgroup.filter(|cgroup| cgroup.exists()) {
            self.last = Some(Box::new(cgroup.stats()));
        }
        match (self.last.as_deref(), self.earlier.as_deref()) {
            (Some(last), Some(earlier)) => Some(last.clone().after(earlier)),
            (last, earlier) => last.or(earlier).cloned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::*;

    fn group(directory: &Path, name: &str, usage: u64) -> Cgroup {
        let path = directory.join(name);
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("cpu.stat"), format!("usage_usec {usage}\nuser_usec 1\n")).unwrap();
        Cgroup::V2(path)
    }

    fn usage(stats: Option<Stats>) -> u64 {
        let Some(Stats::V2(stats)) = stats else { panic!("{stats:?}") };
        stats.cpu.unwrap().detail.usage_usec
    }

    /// D2, K11 of the findings: a kubelet that subtracts two readings gets a number near 2^64 where a counter falls.
    #[test]
    fn d2_r6_the_counters_of_an_id_never_fall() {
        let directory = tempfile::tempdir().unwrap();
        let mut counts = GroupCounts::default();
        assert_eq!(counts.read(None), None);
        let first = group(directory.path(), "a", 500);
        counts.group_is(Some(&first));
        assert_eq!(usage(counts.read(Some(&first))), 500);
        // The same group has another process.
        counts.group_is(Some(&first));
        group(directory.path(), "a", 700);
        assert_eq!(usage(counts.read(Some(&first))), 700);
        // systemd removes it, and a new one counts from 0.
        fs::remove_dir_all(directory.path().join("a")).unwrap();
        assert_eq!(usage(counts.read(Some(&first))), 700);
        for (name, now, sum) in [("b", 10, 710), ("c", 20, 730)] {
            let next = group(directory.path(), name, now);
            counts.group_is(Some(&next));
            assert_eq!(usage(counts.read(Some(&next))), sum);
        }
        // One that has ended before it could be looked up.
        counts.group_is(None);
        assert_eq!(usage(counts.read(None)), 730);
    }
}
