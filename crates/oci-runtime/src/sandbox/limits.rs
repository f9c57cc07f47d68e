//! The limits of a sandbox's control groups, as files and what is written to them.
//!
//! Owns the few that CRI sets for a sandbox, and how each is said in cgroup v1 and v2. Writes nothing.

use serde_json::Value;

use super::field::is_empty;
use crate::cgroup::CgroupVersion;
use crate::systemd::{Property, PropertyValue};

/// The period of a CPU quota if none is given, in microseconds: the kernel's and systemd's.
const USUAL_PERIOD: u64 = 100_000;
pub(super) const PERIOD_OF_V1: &str = "cpu.cfs_period_us";
pub(super) const QUOTA_OF_V1: &str = "cpu.cfs_quota_us";

/// The limits that podshim writes itself. Those of devices are not among them: a sandbox has no device and can make none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    shares: Option<u64>,
    quota: Option<i64>,
    period: Option<u64>,
    memory: Option<i64>,
    pids: Option<i64>,
}

/// How much processor time a group has, in microseconds: `quota` in each `period`. A quota that is not positive is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CpuTime {
    pub(super) quota: i64,
    pub(super) period: u64,
}

/// A limit: its file in the group, in v1 below the directory of `controller`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Setting {
    pub(super) controller: &'static str,
    pub(super) file: &'static str,
    pub(super) text: String,
}

/// Reads `linux.resources`, or the document of an Update.
///
/// # Errors
/// The field that podshim does not write itself.
pub(crate) fn understood(resources: &Value) -> Result<Limits, String> {
    let mut limits = Limits::default();
    let parts = match resources {
        Value::Null => None,
        parts => Some(parts.as_object().ok_or("linux.resources is not done by podshim itself")?),
    };
    for (part, fields) in parts.into_iter().flatten() {
        if part == "devices" {
            continue;
        }
        let refused = |field: &str| format!("linux.resources.{part}{field} is not done by podshim itself");
        let Some(fields) = fields.as_object() else {
            if is_empty(fields) {
                continue;
            }
            return Err(refused(""));
        };
        // For every other field zero means unset.
        let says_something =
            |field: &str, value: &Value| field == "swappiness" && value.is_number() || !is_empty(value);
        for (field, value) in fields.iter().filter(|(field, value)| says_something(field, value)) {
            let field = field.as_str();
            let no_number = || refused(&format!(".{field}"));
            match (part.as_str(), field) {
                ("cpu", "shares") => limits.shares = Some(value.as_u64().ok_or_else(no_number)?),
                ("cpu", "quota") => limits.quota = Some(value.as_i64().ok_or_else(no_number)?),
                ("cpu", "period") => limits.period = Some(value.as_u64().ok_or_else(no_number)?),
                ("memory", "limit") => limits.memory = Some(value.as_i64().ok_or_else(no_number)?),
                ("pids", "limit") => limits.pids = Some(value.as_i64().ok_or_else(no_number)?),
                _ => return Err(refused(&format!(".{field}"))),
            }
        }
    }
    Ok(limits)
}

impl Limits {
    /// In the order in which the kernel takes them: a quota is bounded by its period.
    pub(super) fn v1(&self) -> Vec<Setting> {
        let setting = |controller, file, text| Setting { controller, file, text };
        [
            self.shares.map(|shares| setting("cpu", "cpu.shares", shares.to_string())),
            self.period.map(|period| setting("cpu", PERIOD_OF_V1, period.to_string())),
            self.quota.map(|quota| setting("cpu", QUOTA_OF_V1, quota.to_string())),
            self.memory.map(|bytes| setting("memory", "memory.limit_in_bytes", bytes.to_string())),
            self.pids.map(|count| setting("pids", "pids.max", or_max(count))),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Quota and period are one file: [`Self::beside`] has filled in the one that the caller does not name.
    pub(super) fn v2(&self) -> Vec<Setting> {
        let setting = |controller, file, text| Setting { controller, file, text };
        let time = (self.quota.is_some() || self.period.is_some()).then(|| {
            let quota = or_max(self.quota.unwrap_or(-1));
            format!("{quota} {}", self.period.unwrap_or(USUAL_PERIOD))
        });
        [
            self.shares.map(|shares| setting("cpu", "cpu.weight", weight(shares).to_string())),
            time.map(|text| setting("cpu", "cpu.max", text)),
            self.memory.map(|bytes| setting("memory", "memory.max", or_max(bytes))),
            self.pids.map(|count| setting("pids", "pids.max", or_max(count))),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

impl Limits {
    /// Whether a setting is the period of a quota that v1 takes after it.
    pub(super) fn has_quota_for(&self, setting: &Setting) -> bool {
        setting.file == PERIOD_OF_V1 && self.quota.is_some()
    }

    /// The limits of a group that has this processor time: of quota and period the one that the caller does not name stays. systemd
    /// takes both as one number, v2 as one file. Asks only if one of them is missing.
    pub(crate) fn beside(&self, of_group: impl FnOnce() -> Option<CpuTime>) -> Self {
        let needs_other = self.quota.is_some() != self.period.is_some();
        let Some(of_group) = needs_other.then(of_group).flatten() else {
            return self.clone();
        };
        let quota = self.quota.or(Some(of_group.quota));
        Self { quota, period: self.period.or(Some(of_group.period)), ..self.clone() }
    }

    /// The property of its period; `None` where the scope has systemd's own and keeps it. systemd before 242 does not know it.
    pub(super) fn period_property(&self, of_group: Option<CpuTime>) -> Option<Property> {
        let had_unusual = of_group.is_some_and(|time| time.period != USUAL_PERIOD);
        let period = self.period.filter(|_| self.has_unusual_period() || had_unusual)?;
        Some(Property::new("CPUQuotaPeriodUSec", PropertyValue::U64(period)))
    }

    /// Whether its period is not the usual one.
    pub(super) fn has_unusual_period(&self) -> bool {
        self.period.is_some_and(|period| period != USUAL_PERIOD)
    }

    /// The same limits as properties of a scope.
    pub(super) fn properties(&self, version: CgroupVersion) -> Vec<Property> {
        let number = |name: &str, value| Property::new(name, PropertyValue::U64(value));
        let memory = match version {
            CgroupVersion::V1 => "MemoryLimit",
            CgroupVersion::V2 => "MemoryMax",
        };
        let or_infinity =
            |limit: i64| u64::try_from(limit).ok().filter(|limit| *limit > 0).unwrap_or(u64::MAX);
        [
            self.shares.map(|shares| match version {
                CgroupVersion::V1 => number("CPUShares", shares),
                CgroupVersion::V2 => number("CPUWeight", weight(shares)),
            }),
            self.quota.map(|quota| number("CPUQuotaPerSecUSec", self.quota_a_second(quota))),
            self.memory.map(|bytes| number(memory, or_infinity(bytes))),
            self.pids.map(|count| number("TasksMax", or_infinity(count))),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// In microseconds; systemd takes whole hundredths.
    fn quota_a_second(&self, quota: i64) -> u64 {
        let period = self.period.filter(|period| *period > 0).unwrap_or(USUAL_PERIOD);
        match u64::try_from(quota) {
            Ok(quota) if quota > 0 => (quota.saturating_mul(1_000_000) / period).next_multiple_of(10_000),
            _ => u64::MAX,
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
    use serde_json::json;

    use super::*;

    fn texts(settings: &[Setting]) -> Vec<String> {
        settings.iter().map(|setting| format!("{}={}", setting.file, setting.text)).collect()
    }

    #[test]
    fn the_limits_of_cri_are_written_in_both_versions() {
        let sandbox =
            understood(&json!({"devices": [{"allow": false, "access": "rwm"}], "cpu": {"shares": 2}}))
                .unwrap();
        assert_eq!(texts(&sandbox.v1()), ["cpu.shares=2"]);
        assert_eq!(texts(&sandbox.v2()), ["cpu.weight=1"]);
        let all = json!({
            "cpu": {"shares": 1024, "quota": 50000, "period": 200_000},
            "memory": {"limit": 1 << 20}, "pids": {"limit": -1},
        });
        let all = understood(&all).unwrap();
        let v1 = "cpu.shares=1024 cpu.cfs_period_us=200000 cpu.cfs_quota_us=50000 memory.limit_in_bytes=1048576 pids.max=max";
        assert_eq!(texts(&all.v1()).join(" "), v1);
        assert_eq!(
            texts(&all.v2()),
            ["cpu.weight=39", "cpu.max=50000 200000", "memory.max=1048576", "pids.max=max"]
        );
        assert_eq!(weight(262_144), 10_000);
        assert_eq!(weight(0), 1);
    }

    /// As the OCI runtimes, which keep what they have configured before.
    #[test]
    fn of_quota_and_period_the_one_that_is_not_named_stays() {
        let written = |cpu: Value, of_group: Option<(i64, u64)>| {
            let of_group = of_group.map(|(quota, period)| CpuTime { quota, period });
            let limits = understood(&json!({"cpu": cpu})).unwrap().beside(|| of_group);
            texts(&[limits.v1(), limits.v2()].concat()).join(" ")
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

    /// systemd takes a quota for a second, in whole hundredths, and each version's own names.
    #[test]
    fn the_limits_of_cri_are_properties_of_a_scope() {
        let limits = understood(&json!({
            "cpu": {"shares": 1024, "quota": 50_500, "period": 200_000},
            "memory": {"limit": 1 << 20}, "pids": {"limit": -1},
        }))
        .unwrap();
        let number = |name: &str, value| Property::new(name, PropertyValue::U64(value));
        let quota = number("CPUQuotaPerSecUSec", 260_000);
        let tasks = number("TasksMax", u64::MAX);
        assert_eq!(
            limits.properties(CgroupVersion::V1),
            [number("CPUShares", 1024), quota.clone(), number("MemoryLimit", 1 << 20), tasks.clone()]
        );
        assert_eq!(
            limits.properties(CgroupVersion::V2),
            [number("CPUWeight", 39), quota, number("MemoryMax", 1 << 20), tasks]
        );
        let unlimited = understood(&json!({"cpu": {"quota": -1}})).unwrap();
        assert_eq!(unlimited.properties(CgroupVersion::V2), [number("CPUQuotaPerSecUSec", u64::MAX)]);
    }

    /// As runc: 20 ms in 40 ms are half of a processor.
    #[test]
    fn a_scope_has_the_period_of_an_update() {
        let number = |name: &str, value| Property::new(name, PropertyValue::U64(value));
        for (cpu, had, quota, period) in [
            (json!({"quota": 20_000, "period": 40_000}), (-1, 100_000), Some(500_000), Some(40_000)),
            (json!({"quota": 20_000}), (10_000, 40_000), Some(500_000), Some(40_000)),
            (json!({"quota": 20_000, "period": 100_000}), (10_000, 40_000), Some(200_000), Some(100_000)),
            (json!({"quota": 20_000, "period": 100_000}), (10_000, 100_000), Some(200_000), None),
            (json!({"quota": 20_000}), (-1, 100_000), Some(200_000), None),
            (json!({"period": 40_000}), (10_000, 100_000), Some(250_000), Some(40_000)),
            (json!({"period": 40_000}), (-1, 100_000), Some(u64::MAX), Some(40_000)),
            (json!({"shares": 2}), (10_000, 40_000), None, None),
        ] {
            let of_group = Some(CpuTime { quota: had.0, period: had.1 });
            let limits = understood(&json!({"cpu": cpu})).unwrap().beside(|| of_group);
            let quota = quota.map(|quota| number("CPUQuotaPerSecUSec", quota));
            let properties = limits.properties(CgroupVersion::V2);
            let found = properties.into_iter().find(|property| property.name == "CPUQuotaPerSecUSec");
            assert_eq!(found, quota, "{cpu} {had:?}");
            let period = period.map(|period| number("CPUQuotaPeriodUSec", period));
            assert_eq!(limits.period_property(of_group), period, "{cpu} {had:?}");
        }
    }

    #[test]
    fn a_limit_that_podshim_does_not_write_is_named() {
        for (resources, field) in [
            (json!({"cpu": {"cpus": "0-1"}}), "cpu.cpus"),
            (json!({"memory": {"limit": 5, "swap": 7}}), "memory.swap"),
            (json!({"hugepageLimits": [{"pageSize": "2MB", "limit": 5}]}), "hugepageLimits"),
            (json!({"unified": {"memory.high": "5"}}), "unified.memory.high"),
        ] {
            let error = understood(&resources).unwrap_err();
            assert_eq!(error, format!("linux.resources.{field} is not done by podshim itself"));
        }
        // What says nothing needs nothing.
        assert_eq!(understood(&json!({"cpu": {"cpus": ""}, "hugepageLimits": []})), Ok(Limits::default()));
    }
}
