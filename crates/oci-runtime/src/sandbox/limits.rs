//! The limits of a sandbox's control groups, as a spec or an Update names them.
//!
//! Owns which of them podshim sets itself. `settings` says each in the words of cgroup v1 and v2, `properties` in systemd's. Writes
//! nothing.

mod properties;
pub(super) mod settings;

use std::str::FromStr;

use serde_json::Value;

use super::field::is_empty;
use crate::systemd::{Property, PropertyValue};

/// The period of a CPU quota if none is given, in microseconds: the kernel's and systemd's.
const USUAL_PERIOD: u64 = 100_000;

/// The limits that podshim writes itself: those that `runc update` changes, and huge pages. Those of devices are not among them: a
/// sandbox has no device and can make none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    shares: Option<u64>,
    quota: Option<i64>,
    period: Option<u64>,
    burst: Option<u64>,
    idle: Option<i64>,
    realtime_period: Option<u64>,
    realtime_runtime: Option<i64>,
    cpus: Option<String>,
    memory_nodes: Option<String>,
    memory: Option<i64>,
    reservation: Option<i64>,
    /// As v1 has it: memory and swap together.
    swap: Option<i64>,
    pids: Option<i64>,
    /// The size of the pages as the kernel names it, and how many bytes.
    huge_pages: Vec<(String, u64)>,
    /// Files of v2, and what is written to them after all others.
    unified: Vec<(String, String)>,
}

/// How much processor time a group has, in microseconds: `quota` in each `period`. A quota that is not positive is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CpuTime {
    pub(super) quota: i64,
    pub(super) period: u64,
}

/// As the kernel writes it in `cpu.max`; without a period it is [`USUAL_PERIOD`].
impl FromStr for CpuTime {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut words = text.split_whitespace();
        let quota = match words.next().ok_or(())? {
            "max" => -1,
            quota => quota.parse().map_err(drop)?,
        };
        let period = words.next().map_or(Ok(USUAL_PERIOD), str::parse).map_err(drop)?;
        words.next().map_or(Ok(Self { quota, period }), |_| Err(()))
    }
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
    for (part, fields) in parts.into_iter().flatten().filter(|(part, _)| *part != "devices") {
        let refused = |field: &str| format!("linux.resources.{part}{field} is not done by podshim itself");
        match (part.as_str(), fields) {
            (_, fields) if is_empty(fields) && !fields.is_object() => {}
            ("hugepageLimits", Value::Array(entries)) => {
                let pages = entries.iter().map(huge_pages).collect::<Option<_>>();
                limits.huge_pages = pages.ok_or_else(|| refused(""))?;
            }
            (_, Value::Object(fields)) => {
                for (field, value) in fields.iter().filter(|(field, value)| says_something(field, value)) {
                    limits.take(part, field, value).ok_or_else(|| refused(&format!(".{field}")))?;
                }
            }
            _ => return Err(refused("")),
        }
    }
    Ok(limits)
}

/// For most fields zero means unset.
fn says_something(field: &str, value: &Value) -> bool {
    ["burst", "idle", "swappiness"].contains(&field) && value.is_number() || !is_empty(value)
}

fn huge_pages(entry: &Value) -> Option<(String, u64)> {
    let size = entry.get("pageSize")?.as_str()?;
    // It becomes part of a file's name.
    let is_size = !size.is_empty() && size.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_size.then_some((size.to_owned(), entry.get("limit")?.as_u64()?))
}

impl Limits {
    /// `None` for a field that podshim does not write itself, or a value that is not its.
    fn take(&mut self, part: &str, field: &str, value: &Value) -> Option<()> {
        let text = || value.as_str().map(|text| text.trim().to_owned());
        match (part, field) {
            ("cpu", "shares") => self.shares = Some(value.as_u64()?),
            ("cpu", "quota") => self.quota = Some(value.as_i64()?),
            ("cpu", "period") => self.period = Some(value.as_u64()?),
            ("cpu", "burst") => self.burst = Some(value.as_u64()?),
            ("cpu", "idle") => self.idle = Some(value.as_i64()?),
            ("cpu", "realtimePeriod") => self.realtime_period = Some(value.as_u64()?),
            ("cpu", "realtimeRuntime") => self.realtime_runtime = Some(value.as_i64()?),
            ("cpu", "cpus") => self.cpus = Some(text()?),
            ("cpu", "mems") => self.memory_nodes = Some(text()?),
            ("memory", "limit") => self.memory = Some(value.as_i64()?),
            ("memory", "reservation") => self.reservation = Some(value.as_i64()?),
            ("memory", "swap") => self.swap = Some(value.as_i64()?),
            ("pids", "limit") => self.pids = Some(value.as_i64()?),
            ("unified", "cpu.max") => {
                let time: CpuTime = value.as_str()?.parse().ok()?;
                (self.quota, self.period) = (Some(time.quota), Some(time.period));
                self.unified.push((field.to_owned(), text()?));
            }
            // CONTROLLER.PARAMETER, a file of the group itself.
            ("unified", file) if file.contains('.') && !file.starts_with('.') && !file.contains('/') => {
                self.unified.push((field.to_owned(), text()?));
            }
            _ => return None,
        }
        Some(())
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

    /// Whether it names processors or memory nodes, by itself or as files of v2.
    pub(super) fn has_cpuset(&self) -> bool {
        let of_v2 = self.unified.iter().any(|(file, _)| file.starts_with("cpuset."));
        self.cpus.is_some() || self.memory_nodes.is_some() || of_v2
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_limit_that_podshim_does_not_write_is_named() {
        for (resources, field) in [
            (json!({"cpu": {"cpus": 5}}), "cpu.cpus"),
            (json!({"memory": {"limit": 5, "swappiness": 0}}), "memory.swappiness"),
            (json!({"hugepageLimits": [{"pageSize": "../2MB", "limit": 5}]}), "hugepageLimits"),
            (json!({"hugepageLimits": [{"pageSize": "2MB"}]}), "hugepageLimits"),
            (json!({"unified": {"../memory.high": "5"}}), "unified.../memory.high"),
            (json!({"unified": {"memory": "5"}}), "unified.memory"),
            (json!({"unified": {"cpu.max": "most"}}), "unified.cpu.max"),
            (json!({"blockIO": {"weight": 100}}), "blockIO.weight"),
            (json!({"rdma": {"mlx5_1": {"hcaHandles": 3}}}), "rdma.mlx5_1"),
        ] {
            let error = understood(&resources).unwrap_err();
            assert_eq!(error, format!("linux.resources.{field} is not done by podshim itself"));
        }
        // What says nothing needs nothing.
        let nothing =
            json!({"cpu": {"cpus": ""}, "hugepageLimits": [], "unified": {}, "devices": [{"allow": true}]});
        assert_eq!(understood(&nothing), Ok(Limits::default()));
    }
}
