//! Limits as properties of a scope: systemd writes its own when it reloads.

use cgroups::CgroupVersion;

use super::settings::Setting;
use super::{CpuTime, Limits, USUAL_PERIOD};
use crate::systemd::{Property, PropertyValue};

const WEIGHT: &str = "CPUWeight";

/// The files whose number is a property.
const NUMBERS: [(&str, &str); 9] = [
    ("cpu.shares", "CPUShares"),
    ("cpu.weight", WEIGHT),
    ("memory.limit_in_bytes", "MemoryLimit"),
    ("memory.high", "MemoryHigh"),
    ("memory.low", "MemoryLow"),
    ("memory.max", "MemoryMax"),
    ("memory.min", "MemoryMin"),
    ("memory.swap.max", "MemorySwapMax"),
    ("pids.max", "TasksMax"),
];

/// The files whose list is a property.
const LISTS: [(&str, &str); 2] = [("cpuset.cpus", "AllowedCPUs"), ("cpuset.mems", "AllowedMemoryNodes")];

/// The highest processor that any kernel has, and more than the highest memory node.
const HIGHEST: usize = 8191;

impl Limits {
    /// The limits that systemd knows.
    ///
    /// # Errors
    /// A limit that this version does not have, or that is no number, or no list of numbers, where systemd takes one.
    pub(crate) fn properties(&self, version: CgroupVersion) -> Result<Vec<Property>, String> {
        let mut properties = Vec::new();
        // systemd 252 and later writes `cpu.idle` of v2 by this alone. As with runc, who ends it names the shares too.
        if version == CgroupVersion::V2 && self.becomes_idle() {
            properties.push(Property::new(WEIGHT, PropertyValue::U64(0)));
        }
        for setting in self.settings(version)? {
            let of_file = |names: &[(&str, &'static str)]| {
                names.iter().find(|(file, _)| *file == setting.file).map(|(_, name)| *name)
            };
            let invalid = || format!("linux.resources: {} cannot be {:?}", setting.file, setting.text);
            if let Some(name) = of_file(&NUMBERS) {
                // systemd takes a weight of 0 for idle; the kernel takes none.
                let number = number(&setting).filter(|number| name != WEIGHT || *number > 0);
                let number = number.ok_or_else(invalid)?;
                properties.push(Property::new(name, PropertyValue::U64(number)));
            } else if let Some(name) = of_file(&LISTS) {
                let bits = bits(&setting.text).ok_or_else(invalid)?;
                properties.push(Property::new(name, PropertyValue::Bytes(bits)));
            }
        }
        let quota = self.quota.map(|quota| PropertyValue::U64(self.quota_a_second(quota)));
        properties.extend(quota.map(|quota| Property::new("CPUQuotaPerSecUSec", quota)));
        Ok(properties)
    }

    /// The property of its period; `None` where the scope has systemd's own and keeps it. systemd before 242 does not know it.
    pub(crate) fn period_property(&self, of_group: Option<CpuTime>) -> Option<Property> {
        let had_unusual = of_group.is_some_and(|time| time.period != USUAL_PERIOD);
        let period = self.period.filter(|_| self.has_unusual_period() || had_unusual)?;
        Some(Property::new("CPUQuotaPeriodUSec", PropertyValue::U64(period)))
    }

    /// In microseconds; systemd takes whole hundredths.
    fn quota_a_second(&self, quota: i64) -> u64 {
        let period = self.period.filter(|period| *period > 0).unwrap_or(USUAL_PERIOD);
        match u64::try_from(quota) {
            Ok(quota) if quota > 0 => {
                let a_second = quota.saturating_mul(1_000_000) / period;
                a_second.checked_next_multiple_of(10_000).unwrap_or(u64::MAX)
            }
            _ => u64::MAX,
        }
    }
}

fn number(setting: &Setting) -> Option<u64> {
    match &*setting.text {
        "max" | "-1" => Some(u64::MAX),
        text => text.parse().ok(),
    }
}

/// From a list as `0-2,7` to a bit for each number, the lowest of the first byte first; `None` for an invalid list.
fn bits(list: &str) -> Option<Vec<u8>> {
    let mut bits = Vec::new();
    for range in list.split(',').map(str::trim).filter(|range| !range.is_empty()) {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if first > last || last > HIGHEST {
            return None;
        }
        bits.resize(bits.len().max(last / 8 + 1), 0);
        (first..=last).for_each(|number| bits[number / 8] |= 1 << (number % 8));
    }
    (!bits.is_empty()).then_some(bits)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{CpuTime, understood};
    use super::*;

    fn number(name: &str, value: u64) -> Property {
        Property::new(name, PropertyValue::U64(value))
    }

    /// systemd takes a quota for a second, in whole hundredths, and each version's own names.
    #[test]
    fn the_limits_of_cri_are_properties_of_a_scope() {
        let limits = understood(&json!({
            "cpu": {"shares": 1024, "quota": 50_500, "period": 200_000},
            "memory": {"limit": 1 << 20}, "pids": {"limit": -1},
        }))
        .unwrap();
        let quota = number("CPUQuotaPerSecUSec", 260_000);
        let tasks = number("TasksMax", u64::MAX);
        assert_eq!(
            limits.properties(CgroupVersion::V1).unwrap(),
            [number("CPUShares", 1024), number("MemoryLimit", 1 << 20), tasks.clone(), quota.clone()]
        );
        assert_eq!(
            limits.properties(CgroupVersion::V2).unwrap(),
            [number("CPUWeight", 39), number("MemoryMax", 1 << 20), tasks, quota]
        );
        let unlimited = understood(&json!({"cpu": {"quota": -1}})).unwrap();
        assert_eq!(
            unlimited.properties(CgroupVersion::V2).unwrap(),
            [number("CPUQuotaPerSecUSec", u64::MAX)]
        );
    }

    #[test]
    fn the_limits_of_an_update_are_properties_of_a_scope() {
        let limits = understood(&json!({
            "cpu": {"cpus": "0-2,9", "mems": "1", "burst": 5},
            "memory": {"limit": 50, "swap": 80, "reservation": 20},
            "hugepageLimits": [{"pageSize": "2MB", "limit": 5}],
        }))
        .unwrap();
        let cpus = Property::new("AllowedCPUs", PropertyValue::Bytes(vec![0b111, 0b10]));
        let nodes = Property::new("AllowedMemoryNodes", PropertyValue::Bytes(vec![0b10]));
        assert_eq!(
            limits.properties(CgroupVersion::V1).unwrap(),
            [cpus.clone(), nodes.clone(), number("MemoryLimit", 50)]
        );
        assert_eq!(
            limits.properties(CgroupVersion::V2).unwrap(),
            [cpus, nodes, number("MemorySwapMax", 30), number("MemoryMax", 50), number("MemoryLow", 20),]
        );
        let unified =
            json!({"unified": {"cpu.max": "50000 200000", "memory.high": "5", "memory.oom.group": "1"}});
        let unified = understood(&unified).unwrap();
        assert_eq!(
            unified.properties(CgroupVersion::V2).unwrap(),
            [number("MemoryHigh", 5), number("CPUQuotaPerSecUSec", 250_000)]
        );
        for (resources, words) in [
            (json!({"cpu": {"cpus": "2-1"}}), "cpuset.cpus cannot be \"2-1\""),
            (json!({"cpu": {"mems": "0-4294967295"}}), "cpuset.mems cannot be \"0-4294967295\""),
            (json!({"cpu": {"cpus": ","}}), "cpuset.cpus cannot be \",\""),
            (json!({"unified": {"cpu.weight": "0"}}), "cpu.weight cannot be \"0\""),
            (json!({"unified": {"memory.high": "much"}}), "memory.high cannot be \"much\""),
        ] {
            let error = understood(&resources).unwrap().properties(CgroupVersion::V2).unwrap_err();
            assert_eq!(error, format!("linux.resources: {words}"));
        }
    }

    #[test]
    fn an_idle_scope_has_no_weight() {
        for (cpu, weights) in [
            (json!({"idle": 1, "shares": 1024}), vec![0]),
            (json!({"idle": 0, "shares": 1024}), vec![39]),
            (json!({"idle": 0}), vec![]),
            (json!({"burst": 0}), vec![]),
        ] {
            let limits = understood(&json!({"cpu": cpu})).unwrap();
            let weights: Vec<_> = weights.into_iter().map(|weight| number("CPUWeight", weight)).collect();
            assert_eq!(limits.properties(CgroupVersion::V2).unwrap(), weights, "{cpu}");
        }
        let most = understood(&json!({"cpu": {"quota": i64::MAX, "period": 1}})).unwrap();
        assert_eq!(most.properties(CgroupVersion::V2).unwrap(), [number("CPUQuotaPerSecUSec", u64::MAX)]);
    }

    /// As runc: 20 ms in 40 ms are half of a processor.
    #[test]
    fn a_scope_has_the_period_of_an_update() {
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
            let properties = limits.properties(CgroupVersion::V2).unwrap();
            let found = properties.into_iter().find(|property| property.name == "CPUQuotaPerSecUSec");
            assert_eq!(found, quota, "{cpu} {had:?}");
            let period = period.map(|period| number("CPUQuotaPeriodUSec", period));
            assert_eq!(limits.period_property(of_group), period, "{cpu} {had:?}");
        }
    }
}
