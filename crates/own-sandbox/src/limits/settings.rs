//! Limits as files of control groups, and what is written to them, in the order in which the kernel takes them.

use std::borrow::Cow;

use cgroups::CgroupVersion;

use super::{Limits, USUAL_PERIOD};

pub(crate) const PERIOD_OF_V1: &str = "cpu.cfs_period_us";
pub(crate) const QUOTA_OF_V1: &str = "cpu.cfs_quota_us";
const MEMORY_OF_V1: &str = "memory.limit_in_bytes";
const SWAP_OF_V1: &str = "memory.memsw.limit_in_bytes";
const SWAP_OF_V2: &str = "memory.swap.max";
const TIME_OF_V2: &str = "cpu.max";
const REALTIME_PERIOD: &str = "cpu.rt_period_us";
const WEIGHT: &str = "cpu.weight";
const RESERVED: &str = ".rsvd.";

/// A limit: its file in the group, in v1 below the directory of `controller`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(crate) controller: &'static str,
    pub(crate) file: Cow<'static, str>,
    pub(crate) text: String,
}

impl Setting {
    fn new(controller: &'static str, file: impl Into<Cow<'static, str>>, text: impl ToString) -> Self {
        Self { controller, file: file.into(), text: text.to_string() }
    }
}

impl Limits {
    /// What is written in that version.
    ///
    /// # Errors
    /// A limit that this version does not have, or cannot have beside the others.
    pub(crate) fn settings(&self, version: CgroupVersion) -> Result<Vec<Setting>, String> {
        match version {
            CgroupVersion::V1 => self.v1(),
            CgroupVersion::V2 => self.v2(),
        }
    }

    fn v1(&self) -> Result<Vec<Setting>, String> {
        if let Some(file) = &self.needs_v2 {
            return Err(format!("linux.resources.unified.{file} needs cgroup v2, and this node has v1"));
        }
        let settings = [
            self.idle.map(|idle| Setting::new("cpu", "cpu.idle", idle)),
            self.shares_unless_idle().map(|shares| Setting::new("cpu", "cpu.shares", shares)),
            // A quota is bounded by its period, and a burst by its quota.
            self.period.map(|period| Setting::new("cpu", PERIOD_OF_V1, period)),
            self.quota.map(|quota| Setting::new("cpu", QUOTA_OF_V1, quota)),
            self.burst.map(|burst| Setting::new("cpu", "cpu.cfs_burst_us", burst)),
            self.realtime_period.map(|period| Setting::new("cpu", REALTIME_PERIOD, period)),
            self.realtime_runtime.map(|runtime| Setting::new("cpu", "cpu.rt_runtime_us", runtime)),
            self.cpus.as_ref().map(|cpus| Setting::new("cpuset", "cpuset.cpus", cpus)),
            self.memory_nodes.as_ref().map(|nodes| Setting::new("cpuset", "cpuset.mems", nodes)),
            self.memory.map(|bytes| Setting::new("memory", MEMORY_OF_V1, bytes)),
            self.swap_beside().map(|bytes| Setting::new("memory", SWAP_OF_V1, bytes)),
            self.reservation.map(|bytes| Setting::new("memory", "memory.soft_limit_in_bytes", bytes)),
            self.pids.map(|count| Setting::new("pids", "pids.max", or_max(count))),
        ];
        Ok(settings.into_iter().flatten().chain(self.pages("limit_in_bytes")).collect())
    }

    /// Quota and period are one file: [`Self::beside`] has filled in the one that the caller does not name.
    fn v2(&self) -> Result<Vec<Setting>, String> {
        if self.realtime_period.is_some() || self.realtime_runtime.is_some() {
            return Err(
                "linux.resources.cpu has a limit of realtime, which cgroup v2 does not have".to_owned()
            );
        }
        let time = (self.quota.is_some() || self.period.is_some()).then(|| {
            let quota = or_max(self.quota.unwrap_or(-1));
            format!("{quota} {}", self.period.unwrap_or(USUAL_PERIOD))
        });
        let settings = [
            self.idle.map(|idle| Setting::new("cpu", "cpu.idle", idle)),
            self.shares_unless_idle().map(|shares| Setting::new("cpu", WEIGHT, weight(shares))),
            // Linux 5.14 to 6.9 divide a burst by 1,000 when its quota is written after it.
            time.map(|time| Setting::new("cpu", TIME_OF_V2, time)),
            self.burst.map(|burst| Setting::new("cpu", "cpu.max.burst", burst)),
            self.cpus.as_ref().map(|cpus| Setting::new("cpuset", "cpuset.cpus", cpus)),
            self.memory_nodes.as_ref().map(|nodes| Setting::new("cpuset", "cpuset.mems", nodes)),
            self.swap_of_v2()?.map(|swap| Setting::new("memory", SWAP_OF_V2, swap)),
            self.memory.map(|bytes| Setting::new("memory", "memory.max", or_max(bytes))),
            self.reservation.map(|bytes| Setting::new("memory", "memory.low", or_max(bytes))),
            self.pids.map(|count| Setting::new("pids", "pids.max", or_max(count))),
        ];
        let unified = self.unified.iter().filter(|(file, _)| file != WEIGHT || !self.becomes_idle());
        let unified = unified.map(|(file, text)| Setting::new("unified", file.clone(), text));
        Ok(settings.into_iter().flatten().chain(self.pages("max")).chain(unified).collect())
    }

    /// The kernel refuses those of a group that is idle, and forgets them when it becomes so.
    fn shares_unless_idle(&self) -> Option<u64> {
        self.shares.filter(|_| !self.becomes_idle())
    }

    pub(super) fn becomes_idle(&self) -> bool {
        self.idle.is_some_and(|idle| idle != 0)
    }

    /// As runc 1.3 and crun: the pages that are used, and those that are reserved, if the kernel counts them (Linux 5.7 and later).
    fn pages(&self, limit: &str) -> impl Iterator<Item = Setting> {
        self.huge_pages.iter().flat_map(move |(size, bytes)| {
            [format!("hugetlb.{size}.{limit}"), format!("hugetlb.{size}{RESERVED}{limit}")]
                .map(|file| Setting::new("hugetlb", file, bytes))
        })
    }

    /// As runc: who takes the limit of memory away takes that of swap away too, unless it is named.
    fn swap_beside(&self) -> Option<i64> {
        self.swap.or(self.memory.filter(|memory| *memory < 0))
    }

    /// v2 counts swap by itself.
    fn swap_of_v2(&self) -> Result<Option<String>, String> {
        let Some(both) = self.swap_beside() else { return Ok(None) };
        match self.memory {
            _ if both < 0 => Ok(Some("max".to_owned())),
            Some(memory) if (0..=both).contains(&memory) => Ok(Some((both - memory).to_string())),
            Some(memory) if memory >= 0 => Err(format!(
                "linux.resources.memory.swap, which is memory and swap together, is {both}, less than memory.limit, {memory}"
            )),
            _ => Err("linux.resources.memory.swap needs a memory.limit beside it".to_owned()),
        }
    }

    /// Whether the kernel may refuse a setting until the one after it is written: a shorter period while the old quota is more than
    /// the group above has, less quota than the old burst, and more memory than the old limit of memory and swap.
    pub(crate) fn waits_for_another(&self, setting: &Setting) -> bool {
        match &*setting.file {
            PERIOD_OF_V1 => self.quota.is_some(),
            REALTIME_PERIOD => self.realtime_runtime.is_some(),
            QUOTA_OF_V1 | TIME_OF_V2 => self.burst.is_some(),
            MEMORY_OF_V1 => self.swap_beside().is_some(),
            _ => false,
        }
    }

    /// Whether the kernel may lack the file of a setting: that of reserved pages, and that of swap if the caller names no limit of it,
    /// or, as runc 1.3, all of it or none.
    pub(crate) fn is_implied(&self, setting: &Setting) -> bool {
        match setting.controller {
            "memory" if setting.file == SWAP_OF_V1 => self.swap.is_none(),
            "memory" => setting.file == SWAP_OF_V2 && ["0", "max"].contains(&&*setting.text),
            "hugetlb" => setting.file.contains(RESERVED),
            _ => false,
        }
    }
}

/// A limit that is not positive is none.
fn or_max(limit: i64) -> String {
    if limit > 0 { limit.to_string() } else { "max".to_owned() }
}

/// From the shares of v1, 2 to 262,144, to the weight of v2, 1 to 10,000, as runc 1.1 converts them. Later runtimes may do otherwise:
/// CRI's 2 shares of a sandbox are a weight of 1 with crun 1.28 too.
fn weight(shares: u64) -> u64 {
    1 + (shares.clamp(2, 262_144) - 2) * 9_999 / 262_142
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::{CpuTime, understood};
    use super::*;

    fn texts(settings: &[Setting]) -> String {
        settings
            .iter()
            .map(|setting| format!("{}={}", setting.file, setting.text))
            .collect::<Vec<_>>()
            .join(" ")
    }

    fn written(resources: &Value, version: CgroupVersion) -> Result<String, String> {
        understood(resources)?.settings(version).map(|settings| texts(&settings))
    }

    #[test]
    fn the_limits_of_cri_are_written_in_both_versions() {
        let sandbox = json!({"devices": [{"allow": false, "access": "rwm"}], "cpu": {"shares": 2}});
        assert_eq!(written(&sandbox, CgroupVersion::V1).unwrap(), "cpu.shares=2");
        assert_eq!(written(&sandbox, CgroupVersion::V2).unwrap(), "cpu.weight=1");
        let all = json!({
            "cpu": {"shares": 1024, "quota": 50000, "period": 200_000},
            "memory": {"limit": 1 << 20}, "pids": {"limit": -1},
        });
        assert_eq!(
            written(&all, CgroupVersion::V1).unwrap(),
            "cpu.shares=1024 cpu.cfs_period_us=200000 cpu.cfs_quota_us=50000 memory.limit_in_bytes=1048576 pids.max=max"
        );
        assert_eq!(
            written(&all, CgroupVersion::V2).unwrap(),
            "cpu.weight=39 cpu.max=50000 200000 memory.max=1048576 pids.max=max"
        );
        assert_eq!(weight(262_144), 10_000);
        assert_eq!(weight(0), 1);
    }

    #[test]
    fn the_limits_of_an_update_are_written_in_both_versions() {
        let all = json!({
            "cpu": {"burst": 0, "idle": 1, "cpus": "0-1", "mems": "0"},
            "memory": {"limit": 5 << 20, "reservation": 1 << 20, "swap": 8 << 20},
            "hugepageLimits": [{"pageSize": "2MB", "limit": 0}],
        });
        assert_eq!(
            written(&all, CgroupVersion::V1).unwrap(),
            "cpu.idle=1 cpu.cfs_burst_us=0 cpuset.cpus=0-1 cpuset.mems=0 memory.limit_in_bytes=5242880 \
             memory.memsw.limit_in_bytes=8388608 memory.soft_limit_in_bytes=1048576 hugetlb.2MB.limit_in_bytes=0 \
             hugetlb.2MB.rsvd.limit_in_bytes=0"
        );
        assert_eq!(
            written(&all, CgroupVersion::V2).unwrap(),
            "cpu.idle=1 cpu.max.burst=0 cpuset.cpus=0-1 cpuset.mems=0 memory.swap.max=3145728 memory.max=5242880 \
             memory.low=1048576 hugetlb.2MB.max=0 hugetlb.2MB.rsvd.max=0"
        );
    }

    #[test]
    fn what_one_version_does_not_have_is_refused_there() {
        let realtime = json!({"cpu": {"realtimeRuntime": 0, "realtimePeriod": 500_000}});
        assert_eq!(written(&realtime, CgroupVersion::V1).unwrap(), "cpu.rt_period_us=500000");
        let error = written(&realtime, CgroupVersion::V2).unwrap_err();
        assert_eq!(error, "linux.resources.cpu has a limit of realtime, which cgroup v2 does not have");
        let unified =
            json!({"unified": {"cpu.max": "5000", "cpu.max.burst": "1000", "memory.high": " max\n"}});
        assert_eq!(
            written(&unified, CgroupVersion::V2).unwrap(),
            "cpu.max=5000 100000 cpu.max.burst=1000 memory.high=max"
        );
        let beside = json!({"cpu": {"period": 50_000}, "unified": {"cpu.max": "20000"}});
        assert_eq!(written(&beside, CgroupVersion::V2).unwrap(), "cpu.max=20000 50000");
        let error = written(&unified, CgroupVersion::V1).unwrap_err();
        assert_eq!(error, "linux.resources.unified.cpu.max needs cgroup v2, and this node has v1");
    }

    /// The kernel refuses shares of an idle group.
    #[test]
    fn a_group_has_its_shares_while_it_is_not_idle() {
        let cpu = |idle| json!({"cpu": {"idle": idle, "shares": 2}});
        assert_eq!(written(&cpu(1), CgroupVersion::V1).unwrap(), "cpu.idle=1");
        assert_eq!(written(&cpu(0), CgroupVersion::V1).unwrap(), "cpu.idle=0 cpu.shares=2");
        assert_eq!(written(&cpu(1), CgroupVersion::V2).unwrap(), "cpu.idle=1");
        let unified = |idle| json!({"unified": {"cpu.idle": idle, "cpu.weight": "7"}, "cpu": {"shares": 2}});
        assert_eq!(
            written(&unified("0"), CgroupVersion::V2).unwrap(),
            "cpu.idle=0 cpu.weight=1 cpu.weight=7"
        );
        assert_eq!(written(&unified("1"), CgroupVersion::V2).unwrap(), "cpu.idle=1");
    }

    /// As runc 1.1.
    #[test]
    fn swap_is_counted_with_memory_in_v1_and_by_itself_in_v2() {
        for (memory, v1, v2) in [
            (
                json!({"limit": -1}),
                "memory.limit_in_bytes=-1 memory.memsw.limit_in_bytes=-1",
                Ok("memory.swap.max=max memory.max=max"),
            ),
            (
                json!({"limit": 50, "swap": -1}),
                "memory.limit_in_bytes=50 memory.memsw.limit_in_bytes=-1",
                Ok("memory.swap.max=max memory.max=50"),
            ),
            (
                json!({"limit": 50, "swap": 50}),
                "memory.limit_in_bytes=50 memory.memsw.limit_in_bytes=50",
                Ok("memory.swap.max=0 memory.max=50"),
            ),
            (json!({"swap": 60}), "memory.memsw.limit_in_bytes=60", Err("needs a memory.limit beside it")),
            (json!({"swap": -1}), "memory.memsw.limit_in_bytes=-1", Ok("memory.swap.max=max")),
            (
                json!({"limit": 50, "swap": 40}),
                "memory.limit_in_bytes=50 memory.memsw.limit_in_bytes=40",
                Err("is 40, less than memory.limit, 50"),
            ),
        ] {
            let resources = json!({"memory": memory});
            assert_eq!(written(&resources, CgroupVersion::V1).unwrap(), v1);
            match (written(&resources, CgroupVersion::V2), v2) {
                (Ok(found), Ok(expected)) => assert_eq!(found, expected),
                (Err(found), Err(expected)) => assert!(found.ends_with(expected), "{found}"),
                (found, _) => panic!("{memory}: {found:?}"),
            }
        }
    }

    /// As the OCI runtimes, which keep what they have configured before.
    #[test]
    fn of_quota_and_period_the_one_that_is_not_named_stays() {
        let written = |cpu: Value, of_group: Option<(i64, u64)>| {
            let of_group = of_group.map(|(quota, period)| CpuTime { quota, period });
            let limits = understood(&json!({"cpu": cpu})).unwrap().beside(|| of_group);
            texts(&[limits.v1().unwrap(), limits.v2().unwrap()].concat())
        };
        assert_eq!(
            written(json!({"period": 50_000}), Some((20_000, 100_000))),
            "cpu.cfs_period_us=50000 cpu.cfs_quota_us=20000 cpu.max=20000 50000"
        );
        assert_eq!(
            written(json!({"quota": 10_000}), Some((20_000, 50_000))),
            "cpu.cfs_period_us=50000 cpu.cfs_quota_us=10000 cpu.max=10000 50000"
        );
        assert_eq!(
            written(json!({"quota": -1}), Some((20_000, 50_000))),
            "cpu.cfs_period_us=50000 cpu.cfs_quota_us=-1 cpu.max=max 50000"
        );
        assert_eq!(
            written(json!({"period": 50_000}), Some((-1, 100_000))),
            "cpu.cfs_period_us=50000 cpu.cfs_quota_us=-1 cpu.max=max 50000"
        );
        // A group without that controller: the file is missing, and the error names it.
        assert_eq!(written(json!({"quota": 10_000}), None), "cpu.cfs_quota_us=10000 cpu.max=10000 100000");
        assert_eq!(written(json!({"shares": 2}), Some((20_000, 50_000))), "cpu.shares=2 cpu.weight=1");
    }
}
