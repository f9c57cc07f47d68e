//! What a shim has counted: restarts, waits, kills, calls of the OCI runtime.
//!
//! Owns the names of the counts, and their form in a pod's entry. Knows no pod: what is counted is the shim's decision, how it is
//! shown the exporter's.

use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The bounds of all histograms, in milliseconds: from a call of the OCI runtime to a grace period of minutes.
pub const BOUNDS_MS: [u64; 12] =
    [10, 30, 100, 300, 1000, 3000, 5000, 10_000, 30_000, 60_000, 300_000, 1_800_000];
/// The keys of what is beyond all bounds, and of the sum of all observations in milliseconds.
const BEYOND: &str = "inf";
const SUM: &str = "sum";

/// The role of a container in a count. A standby is a sidecar here; the sandbox is not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CountedRole {
    /// An init.
    Init,
    /// A sidecar.
    Sidecar,
    /// A main.
    Main,
    /// Not in the plan.
    Passthrough,
}

impl CountedRole {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Init, Self::Sidecar, Self::Main, Self::Passthrough];
}

impl Display for CountedRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Init => "init",
            Self::Sidecar => "sidecar",
            Self::Main => "main",
            Self::Passthrough => "passthrough",
        })
    }
}

/// How a pod came to its own end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// Each of its mains exited with 0.
    Succeeded,
    /// One of them did not, or none ran because an init or a sidecar had failed.
    Failed,
}

impl Completion {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Succeeded, Self::Failed];
}

impl Display for Completion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
        })
    }
}

/// What is counted. Its text is the key in the files, which other releases read: a key keeps its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Count<'a> {
    /// Starts of a program, by a caller or by podshim.
    Starts(CountedRole),
    /// Programs that could not be started.
    StartFailures(CountedRole),
    /// Pods that came to their own end, by whether they did what they were made for (J1, I2, I8).
    Completions(Completion),
    /// Starts of a program by podshim after its end (R2, R4).
    Restarts(CountedRole),
    /// Gates that did not open in time (U4).
    GateFailures(CountedRole),
    /// Containers that were held for the whole `gate-timeout` (U6).
    GateTimeouts(CountedRole),
    /// Programs that got SIGKILL, by who sent it: `budget`, `grace`, `caller`.
    ForcedKills(CountedRole, &'a str),
    /// Processes that the kernel killed for memory (R10).
    OomKills(CountedRole),
    /// Stops of a pod, by their first reason.
    Stops(&'a str),
    /// Stops whose time was spent before all had ended (T6).
    BudgetOverruns,
    /// Calls of the OCI runtime that failed.
    RuntimeFailures(&'a str),
    /// Events that containerd did not get.
    EventsDropped,
}

impl Display for Count<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Starts(role) => write!(f, "starts {role}"),
            Self::StartFailures(role) => write!(f, "start_failures {role}"),
            Self::Completions(result) => write!(f, "completions {result}"),
            Self::Restarts(role) => write!(f, "restarts {role}"),
            Self::GateFailures(role) => write!(f, "gate_failures {role}"),
            Self::GateTimeouts(role) => write!(f, "gate_timeouts {role}"),
            Self::ForcedKills(role, cause) => write!(f, "forced_kills {role} {cause}"),
            Self::OomKills(role) => write!(f, "oom_kills {role}"),
            Self::Stops(reason) => write!(f, "stops {reason}"),
            Self::BudgetOverruns => f.write_str("budget_overruns"),
            Self::RuntimeFailures(call) => write!(f, "runtime_failures {call}"),
            Self::EventsDropped => f.write_str("events_dropped"),
        }
    }
}

/// What is measured. Its text is the beginning of its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure<'a> {
    /// How long a container was held before its program started or its `gate-timeout` was over.
    GateWait(CountedRole),
    /// From a program's stop signal to its end.
    Stop(CountedRole),
    /// A call of the OCI runtime.
    RuntimeCall(&'a str),
}

impl Display for Measure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GateWait(role) => write!(f, "gate_wait {role}"),
            Self::Stop(role) => write!(f, "stop {role}"),
            Self::RuntimeCall(call) => write!(f, "runtime_call {call}"),
        }
    }
}

/// A histogram as it is read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// For each of [`BOUNDS_MS`]: how many took as long or less.
    pub within: [u64; BOUNDS_MS.len()],
    /// How many there are.
    pub count: u64,
    /// All together.
    pub sum_ms: u64,
}

/// Counts by their keys. What is zero has no key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Counts {
    by_key: BTreeMap<String, u64>,
}

impl Counts {
    /// Counts one more.
    pub fn add(&mut self, count: Count<'_>) {
        self.add_many(count, 1);
    }

    /// Counts several more.
    pub fn add_many(&mut self, count: Count<'_>, more: u64) {
        self.add_to(count.to_string(), more);
    }

    /// Adds a duration to a histogram.
    pub fn observe(&mut self, measure: Measure<'_>, time: Duration) {
        let time = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        match BOUNDS_MS.iter().find(|bound| time <= **bound) {
            Some(bound) => self.add_to(format!("{measure} {bound}"), 1),
            None => self.add_to(format!("{measure} {BEYOND}"), 1),
        }
        self.add_to(format!("{measure} {SUM}"), time);
    }

    /// Adds all of another's counts, also those that this release does not know.
    pub fn add_all(&mut self, other: &Self) {
        for (key, more) in &other.by_key {
            self.add_to(key.clone(), *more);
        }
    }

    /// How many.
    pub fn of(&self, count: Count<'_>) -> u64 {
        self.at(&count.to_string())
    }

    /// The histogram; `None` if nothing was observed.
    pub fn histogram(&self, measure: Measure<'_>) -> Option<Histogram> {
        let mut histogram = Histogram::default();
        for (bound, within) in BOUNDS_MS.iter().zip(&mut histogram.within) {
            histogram.count += self.at(&format!("{measure} {bound}"));
            *within = histogram.count;
        }
        histogram.count += self.at(&format!("{measure} {BEYOND}"));
        histogram.sum_ms = self.at(&format!("{measure} {SUM}"));
        (histogram.count > 0).then_some(histogram)
    }

    fn at(&self, key: &str) -> u64 {
        self.by_key.get(key).copied().unwrap_or_default()
    }

    fn add_to(&mut self, key: String, more: u64) {
        if more > 0 {
            let count = self.by_key.entry(key).or_default();
            *count = count.saturating_add(more);
        }
    }
}

/// The counts of one shim, as its pod's entry has them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PodCounts {
    /// Which shim has counted: no other shim of this boot has the same text.
    pub shim: String,
    /// What it has counted.
    pub counts: Counts,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_histogram_is_cumulative_and_has_what_is_beyond_all_bounds() {
        let mut counts = Counts::default();
        let stop = Measure::Stop(CountedRole::Main);
        assert_eq!(counts.histogram(stop), None);
        for milliseconds in [0, 10, 11, 1000, 2_000_000] {
            counts.observe(stop, Duration::from_millis(milliseconds));
        }
        let histogram = counts.histogram(stop).unwrap();
        assert_eq!(histogram.within, [2, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 4]);
        assert_eq!((histogram.count, histogram.sum_ms), (5, 2_001_021));
        assert_eq!(counts.histogram(Measure::Stop(CountedRole::Init)), None);
    }

    /// A `delete` of this release adds up what a newer shim has counted.
    #[test]
    fn counts_of_another_release_are_added_too() {
        let mut counts: Counts = serde_json::from_str(r#"{"restarts main":2,"of tomorrow":7}"#).unwrap();
        let mut other = counts.clone();
        other.add(Count::Restarts(CountedRole::Main));
        counts.add_all(&other);
        assert_eq!(counts.of(Count::Restarts(CountedRole::Main)), 5);
        assert_eq!(counts.at("of tomorrow"), 14);
    }
}
