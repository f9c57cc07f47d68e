//! The limits of a sandbox's control groups, as a spec or an Update names them.
//!
//! Owns which of them podshim sets itself, the five that CRI sets for a sandbox, and how each cgroup version and systemd say them.
//! Writes nothing.

use cgroups::CgroupVersion;
use serde_json::Value;

use super::field::{NotUnderstood, is_empty, not_done};
use crate::systemd::{Property, PropertyValue};

/// The period of a CPU quota if none is given, in microseconds: the kernel's and systemd's.
const USUAL_PERIOD: u64 = 100_000;

pub(super) const PERIOD_OF_V1: &str = "cpu.cfs_period_us";
pub(super) const QUOTA_OF_V1: &str = "cpu.cfs_quota_us";

/// The limits that podshim writes itself. CRI sets no other for a process that does nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    shares: Option<u64>,
    quota: Option<i64>,
    period: Option<u64>,
    memory: Option<i64>,
    pids: Option<i64>,
}

/// How much processor time a group has, in microseconds: `quota` in each `period`. A quota that is not positive is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuTime {
    pub(super) quota: i64,
    pub(super) period: u64,
}

impl CpuTime {
    /// As the kernel has it in `cpu.max`.
    pub(super) fn of_v2(text: &str) -> Option<Self> {
        let (quota, period) = text.trim().split_once(' ')?;
        let quota = if quota == "max" { -1 } else { quota.parse().ok()? };
        Some(Self { quota, period: period.parse().ok()? })
    }
}

/// A limit: its file in the group, in v1 below the directory of `controller`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Setting {
    pub(super) controller: &'static str,
    pub(super) file: &'static str,
    pub(super) text: String,
}

impl Setting {
    fn new(controller: &'static str, file: &'static str, text: impl ToString) -> Self {
        Self { controller, file, text: text.to_string() }
    }
}

/// Reads `linux.resources`, or the document of an Update. The rules for devices are no limits of podshim's: a sandbox has no device
/// and can make none.
///
/// # Errors
/// The field that podshim does not write itself.
pub fn understood(resources: &Value) -> Result<Limits, NotUnderstood> {
    let mut limits = Limits::default();
    let parts = match resources {
        Value::Null => None,
        parts => Some(parts.as_object().ok_or_else(|| not_done("linux.resources"))?),
    };
    for (part, fields) in parts.into_iter().flatten().filter(|(part, _)| *part != "devices") {
        let refused = |field: &str| not_done(&format!("linux.resources.{part}{field}"));
        match fields {
            Value::Object(fields) => {
                for (field, value) in fields.iter().filter(|(field, value)| says_something(field, value)) {
                    limits.take(part, field, value).ok_or_else(|| refused(&format!(".{field}")))?;
                }
            }
            fields if is_empty(fields) => {}
            _ => return Err(refused("")),
        }
    }
    Ok(limits)
}

/// For most fields zero means unset.
fn says_something(field: &str, value: &Value) -> bool {
    ["burst", "idle", "swappiness"].contains(&field) && value.is_number() || !is_empty(value)
}

impl Limits {
    /// `None` for a field that podshim does not write itself, or a value that is not its.
    fn take(&mut self, part: &str, field: &str, value: &Value) -> Option<()> {
        match (part, field) {
            ("cpu", "shares") => self.shares = Some(value.as_u64()?),
            ("cpu", "quota") => self.quota = Some(value.as_i64()?),
            ("cpu", "period") => self.period = Some(value.as_u64()?),
            // The only negative number that the kernel takes is -1.
            ("memory", "limit") => self.memory = Some(value.as_i64().filter(|bytes| *bytes >= -1)?),
            ("pids", "limit") => self.pids = Some(value.as_i64()?),
            _ => return None,
        }
        Some(())
    }

    /// The limits of a group that has this processor time: of quota and period the one that the caller does not name stays. systemd
    /// takes both as one number, v2 as one file. Asks only if one of them is missing.
    pub fn beside(&self, of_group: impl FnOnce() -> Option<CpuTime>) -> Self {
        let needs_other = self.quota.is_some() != self.period.is_some();
        let Some(of_group) = needs_other.then(of_group).flatten() else {
            return *self;
        };
        let quota = self.quota.or(Some(of_group.quota));
        Self { quota, period: self.period.or(Some(of_group.period)), ..*self }
    }

    /// Whether its period is not the usual one.
    pub(super) fn has_unusual_period(&self) -> bool {
        self.period.is_some_and(|period| period != USUAL_PERIOD)
    }

    /// What is written in that version, in this order. Quota and period are one file of v2: [`Self::beside`] has filled in the one
    /// that the caller does not name.
    pub(super) fn settings(&self, version: CgroupVersion) -> Vec<Setting> {
        let time = self.quota.is_some() || self.period.is_some();
        let time = time.then(|| {
            let quota = or_max(self.quota.unwrap_or(-1));
            format!("{quota} {}", self.period.unwrap_or(USUAL_PERIOD))
        });
        let pids = self.pids.map(|count| Setting::new("pids", "pids.max", or_max(count)));
        let settings = match version {
            CgroupVersion::V1 => [
                self.shares.map(|shares| Setting::new("cpu", "cpu.shares", shares)),
                self.period.map(|period| Setting::new("cpu", PERIOD_OF_V1, period)),
                self.quota.map(|quota| Setting::new("cpu", QUOTA_OF_V1, quota)),
                self.memory.map(|bytes| Setting::new("memory", "memory.limit_in_bytes", bytes)),
                pids,
            ],
            CgroupVersion::V2 => [
                self.shares.map(|shares| Setting::new("cpu", "cpu.weight", weight(shares))),
                time.map(|time| Setting::new("cpu", "cpu.max", time)),
                self.memory.map(|bytes| Setting::new("memory", "memory.max", or_max(bytes))),
                pids,
                None,
            ],
        };
        settings.into_iter().flatten().collect()
    }

    /// Whether the kernel may refuse a setting until the one after it is written: a shorter period while the old quota is more than
    /// the group above has.
    pub(super) fn waits_for_another(&self, setting: &Setting) -> bool {
        setting.file == PERIOD_OF_V1 && self.quota.is_some()
    }

    /// The limits as properties of a scope: systemd writes its own when it reloads.
    pub(super) fn properties(&self, version: CgroupVersion) -> Vec<Property> {
        let (shares, memory) = match version {
            CgroupVersion::V1 => (("CPUShares", self.shares), "MemoryLimit"),
            CgroupVersion::V2 => (("CPUWeight", self.shares.map(weight)), "MemoryMax"),
        };
        let properties = [
            shares,
            (memory, self.memory.map(or_infinity)),
            ("TasksMax", self.pids.map(or_infinity)),
            ("CPUQuotaPerSecUSec", self.quota.map(|quota| self.quota_a_second(quota))),
        ];
        let property = |(name, value): (&str, Option<u64>)| Some(number(name, value?));
        properties.into_iter().filter_map(property).collect()
    }

    /// The property of its period; `None` where the scope has systemd's own and keeps it. systemd before 242 does not know it.
    pub(super) fn period_property(&self, of_group: Option<CpuTime>) -> Option<Property> {
        let had_unusual = of_group.is_some_and(|time| time.period != USUAL_PERIOD);
        let period = self.period.filter(|_| self.has_unusual_period() || had_unusual)?;
        Some(number("CPUQuotaPeriodUSec", period))
    }

    /// In microseconds; systemd takes whole hundredths.
    fn quota_a_second(&self, quota: i64) -> u64 {
        let period = self.period.filter(|period| *period > 0).unwrap_or(USUAL_PERIOD);
        match or_infinity(quota) {
            u64::MAX => u64::MAX,
            quota => {
                let a_second = quota.saturating_mul(1_000_000) / period;
                a_second.checked_next_multiple_of(10_000).unwrap_or(u64::MAX)
            }
        }
    }
}

fn number(name: &str, value: u64) -> Property {
    Property::new(name, PropertyValue::U64(value))
}

/// A limit that is not positive is none.
fn or_max(limit: i64) -> String {
    if limit > 0 { limit.to_string() } else { "max".to_owned() }
}

/// The same in systemd's words.
fn or_infinity(limit: i64) -> u64 {
    u64::try_from(limit).ok().filter(|limit| *limit > 0).unwrap_or(u64::MAX)
}

/// From the shares of v1, 2 to 262,144, to the weight of v2, 1 to 10,000, as runc 1.1 converts them. Later runtimes may do otherwise:
/// CRI's 2 shares of a sandbox are a weight of 1 with crun 1.28 too.
fn weight(shares: u64) -> u64 {
    1 + (shares.clamp(2, 262_144) - 2) * 9_999 / 262_142
}

#[cfg(test)]
mod tests;
