//! The limits of a sandbox's control groups, as a spec or an Update names them.
//!
//! Owns which of them podshim sets itself. `settings` says each in the words of cgroup v1 and v2, `properties` in systemd's. Writes
//! nothing.

mod properties;
pub(super) mod settings;

use serde_json::Value;

use super::field::is_empty;

/// The period of a CPU quota if none is given, in microseconds: the kernel's and systemd's.
const USUAL_PERIOD: u64 = 100_000;

/// The limits that podshim writes itself: of those that `runc update` changes all but block devices', and huge pages. Those of devices
/// are not among them: a sandbox has no device and can make none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Limits {
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
    /// Files of v2, and what is written to them after all others. `cpu.max`, `cpu.max.burst` and `cpu.idle` are among the fields above.
    unified: Vec<(String, String)>,
    /// The first field that v1 does not have.
    needs_v2: Option<String>,
    /// The first field that CRI does not set for a sandbox.
    beyond_cri: Option<String>,
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
        let (quota, period) = quota_and_period(text)?;
        Some(Self { quota, period: period? })
    }
}

/// As `cpu.max` takes them; without a period the group keeps its own.
fn quota_and_period(text: &str) -> Option<(i64, Option<u64>)> {
    let mut words = text.split_whitespace();
    let quota = match words.next()? {
        "max" => -1,
        quota => quota.parse().ok().filter(|quota| *quota > 0)?,
    };
    let period = words.next().map(|period| period.parse().ok().filter(|period| *period > 0));
    let period = if let Some(period) = period { Some(period?) } else { None };
    words.next().is_none().then_some((quota, period))
}

/// Reads `linux.resources`, or the document of an Update.
///
/// # Errors
/// The field that podshim does not write itself.
pub fn understood(resources: &Value) -> Result<Limits, String> {
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
                limits.beyond_cri.get_or_insert_with(|| part.clone());
            }
            (_, Value::Object(fields)) => {
                for (field, value) in fields.iter().filter(|(field, value)| says_something(field, value)) {
                    limits.take(part, field, value).ok_or_else(|| refused(&format!(".{field}")))?;
                    if !OF_CRI.contains(&(part.as_str(), field.as_str())) {
                        limits.beyond_cri.get_or_insert_with(|| format!("{part}.{field}"));
                    }
                    if part == "unified" {
                        limits.needs_v2.get_or_insert_with(|| field.clone());
                    }
                }
            }
            _ => return Err(refused("")),
        }
    }
    Ok(limits)
}

/// What CRI may set for a sandbox.
const OF_CRI: [(&str, &str); 5] =
    [("cpu", "shares"), ("cpu", "quota"), ("cpu", "period"), ("memory", "limit"), ("pids", "limit")];

/// For most fields zero means unset.
fn says_something(field: &str, value: &Value) -> bool {
    ["burst", "idle", "swappiness"].contains(&field) && value.is_number() || !is_empty(value)
}

/// Whether it is a file of a group, as CONTROLLER.PARAMETER.
fn is_of_controller(file: &str) -> bool {
    let controller = file.split_once('.').map(|(controller, _)| controller);
    controller.is_some_and(|name| !name.is_empty() && name != "cgroup") && !file.contains('/')
}

fn huge_pages(entry: &Value) -> Option<(String, u64)> {
    let entry = entry.as_object().filter(|entry| entry.len() == 2)?;
    let size = entry.get("pageSize")?.as_str()?;
    // It becomes part of a file's name.
    let is_size = !size.is_empty() && size.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_size.then_some((size.to_owned(), entry.get("limit")?.as_u64()?))
}

impl Limits {
    /// `None` for a field that podshim does not write itself, or a value that is not its.
    fn take(&mut self, part: &str, field: &str, value: &Value) -> Option<()> {
        // The kernel would take an empty text for another value, or not see it.
        let text = || value.as_str().map(|text| text.trim().to_owned()).filter(|text| !text.is_empty());
        // The only negative number that the kernel takes.
        let bytes = || value.as_i64().filter(|bytes| *bytes >= -1);
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
            ("memory", "limit") => self.memory = Some(bytes()?),
            ("memory", "reservation") => self.reservation = Some(bytes()?),
            ("memory", "swap") => self.swap = Some(bytes()?),
            ("pids", "limit") => self.pids = Some(value.as_i64()?),
            ("unified", "cpu.max") => {
                let (quota, period) = quota_and_period(value.as_str()?)?;
                (self.quota, self.period) = (Some(quota), period.or(self.period));
            }
            ("unified", "cpu.max.burst") => self.burst = Some(text()?.parse().ok()?),
            ("unified", "cpu.idle") => self.idle = Some(text()?.parse().ok()?),
            // The group's processes and their state are podshim's.
            ("unified", file) if is_of_controller(file) => self.unified.push((field.to_owned(), text()?)),
            _ => return None,
        }
        Some(())
    }

    /// The limits of a group that has this processor time: of quota and period the one that the caller does not name stays. systemd
    /// takes both as one number, v2 as one file. Asks only if one of them is missing.
    pub fn beside(&self, of_group: impl FnOnce() -> Option<CpuTime>) -> Self {
        let needs_other = self.quota.is_some() != self.period.is_some();
        let Some(of_group) = needs_other.then(of_group).flatten() else {
            return self.clone();
        };
        let quota = self.quota.or(Some(of_group.quota));
        Self { quota, period: self.period.or(Some(of_group.period)), ..self.clone() }
    }

    /// Whether its period is not the usual one.
    pub(super) fn has_unusual_period(&self) -> bool {
        self.period.is_some_and(|period| period != USUAL_PERIOD)
    }

    /// The first field that CRI does not set for a sandbox. At Create it is the OCI runtime's, whose releases differ in it.
    pub(super) fn beyond_cri(&self) -> Option<&str> {
        self.beyond_cri.as_deref()
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
            (json!({"cpu": {"mems": " "}}), "cpu.mems"),
            (json!({"memory": {"limit": -2}}), "memory.limit"),
            (json!({"memory": {"limit": 5, "swappiness": 0}}), "memory.swappiness"),
            (json!({"hugepageLimits": [{"pageSize": "../2MB", "limit": 5}]}), "hugepageLimits"),
            (json!({"hugepageLimits": [{"pageSize": "2MB"}]}), "hugepageLimits"),
            (json!({"hugepageLimits": [{"pageSize": "2MB", "limit": 5, "node": 1}]}), "hugepageLimits"),
            (json!({"unified": {"../memory.high": "5"}}), "unified.../memory.high"),
            (json!({"unified": {"memory": "5"}}), "unified.memory"),
            (json!({"unified": {"cgroup.procs": "0"}}), "unified.cgroup.procs"),
            (json!({"unified": {"cpu.max": "most"}}), "unified.cpu.max"),
            (json!({"unified": {"cpu.max": "0 100000"}}), "unified.cpu.max"),
            (json!({"unified": {"cpu.max": "5000 100000 1"}}), "unified.cpu.max"),
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

    #[test]
    fn what_cri_does_not_set_for_a_sandbox_is_named() {
        let of_cri = json!({
            "cpu": {"shares": 2, "quota": 5000, "period": 100_000}, "memory": {"limit": 5}, "pids": {"limit": 5},
        });
        assert_eq!(understood(&of_cri).unwrap().beyond_cri(), None);
        for (resources, field) in [
            (json!({"cpu": {"shares": 2, "mems": "0"}}), "cpu.mems"),
            (json!({"hugepageLimits": [{"pageSize": "2MB", "limit": 0}]}), "hugepageLimits"),
            (json!({"unified": {"cpu.max": "5000"}}), "unified.cpu.max"),
        ] {
            assert_eq!(understood(&resources).unwrap().beyond_cri(), Some(field));
        }
    }
}
