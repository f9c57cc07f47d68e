//! Events of a pod as the commands show them: the control API's events as data, and each as a sentence.

use std::collections::BTreeMap;
use std::time::Duration;

use control_api::event::{Cause, Kind};
use control_api::{Budget, Event, StopReason};
use node_state::calendar::civil_date;
use pod_spec::DurationText;
use serde::Serialize;

use crate::pods::{non_empty, signal};
use crate::words;

/// One event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EventReport {
    /// Counted from 1 in each shim.
    pub sequence: u64,
    /// Milliseconds since 1970.
    pub wall_ms: i64,
    /// Milliseconds since the shim's start, by a clock that is never set.
    pub monotonic_ms: u64,
    /// What happened.
    #[serde(serialize_with = "words::serialize")]
    pub kind: Kind,
    /// The name of its container; `None` for an event of the pod.
    pub container: Option<String>,
    /// The container's id.
    pub id: Option<String>,
    /// What a held container waits for, the message of a probe or of the runtime, or the hook's name.
    pub text: Option<String>,
    /// Why a hook has failed.
    pub failure: Option<String>,
    /// The pid of its process.
    pub pid: Option<u32>,
    /// The real exit code of its program.
    pub code: Option<u32>,
    /// The exit code that callers see.
    pub shown_code: Option<u32>,
    /// The signal's name.
    pub signal: Option<String>,
    /// Why it was sent.
    #[serde(serialize_with = "words::serialize_some")]
    pub cause: Option<Cause>,
    /// The time until the next start; for a stop, its budget.
    pub duration_ms: Option<u64>,
    /// Why the pod is stopped.
    #[serde(serialize_with = "words::serialize_some")]
    pub reason: Option<StopReason>,
    /// Who counts the time of the stop.
    #[serde(serialize_with = "words::serialize_some")]
    pub budget: Option<Budget>,
}

impl EventReport {
    /// The report of an event of the control API.
    pub fn of(event: Event) -> Self {
        let kind = event.kind.enum_value_or_default();
        let cause = event.cause.enum_value_or_default();
        let reason = event.stop_reason.enum_value_or_default();
        Self {
            sequence: event.sequence,
            wall_ms: event.wall_ms,
            monotonic_ms: event.monotonic_ms,
            kind,
            container: non_empty(event.name),
            id: non_empty(event.id),
            text: non_empty(event.text),
            failure: non_empty(event.failure),
            pid: (event.pid != 0).then_some(event.pid),
            code: event.code,
            shown_code: event.shown_code,
            signal: (event.signal != 0).then(|| signal(event.signal)),
            cause: (cause != Cause::NO_CAUSE).then_some(cause),
            duration_ms: event.duration_ms,
            reason: (reason != StopReason::NOT_STOPPING).then_some(reason),
            budget: (kind == Kind::STOP_BEGAN).then(|| event.budget.enum_value_or_default()),
        }
    }

    /// The event in a few words.
    pub fn sentence(&self) -> String {
        let with = |words: &str, text: &Option<String>| match text {
            Some(text) => format!("{words}: {text}"),
            None => words.to_owned(),
        };
        let after = |words: &str| match self.duration_ms {
            Some(time) => format!("{words} {}", duration(time)),
            None => words.to_owned(),
        };
        let signal = self.signal.as_deref().unwrap_or("a signal");
        match self.kind {
            Kind::UNKNOWN => "something this release does not know".to_owned(),
            Kind::CREATED => "created".to_owned(),
            Kind::HELD => match &self.text {
                Some(text) => format!("held, waiting for {text}"),
                None => "held".to_owned(),
            },
            Kind::STARTING => "starting".to_owned(),
            Kind::RUNNING => match self.pid {
                Some(pid) => format!("running, pid {pid}"),
                None => "running".to_owned(),
            },
            Kind::START_FAILED => with("cannot be started", &self.text),
            Kind::GATE_OPENED => "gate open".to_owned(),
            Kind::GATE_FAILED => with("gate failed", &self.text),
            Kind::GATE_TIMED_OUT => "held for the whole gate-timeout: it does not start".to_owned(),
            Kind::EXITED => match self.code {
                Some(code) => format!("exited with {code}"),
                None => "ended, with a code that is not known".to_owned(),
            },
            Kind::RESTART_DUE => after("to be started again in"),
            Kind::STOPPED => match (self.code, self.shown_code) {
                (Some(code), Some(shown)) if code != shown => format!("ended with {code}, shown as {shown}"),
                (Some(code), _) | (None, Some(code)) => format!("ended with {code}"),
                (None, None) => "ended".to_owned(),
            },
            Kind::DELETED => "deleted".to_owned(),
            Kind::SIGNAL_HELD => format!("{signal} waits for its turn"),
            Kind::SIGNALLED => match self.cause {
                Some(cause) => format!("{signal}: {}", cause.because()),
                None => signal.to_owned(),
            },
            Kind::HOOK_STARTED => with("hook", &self.text),
            Kind::HOOK_ENDED => {
                let hook = self.text.as_deref().unwrap_or("hook");
                match &self.failure {
                    Some(failure) => format!("{hook} failed: {failure}"),
                    None => format!("{hook} done"),
                }
            }
            Kind::OUT_OF_MEMORY => "out of memory".to_owned(),
            Kind::PAUSED => "paused".to_owned(),
            Kind::RESUMED => "resumed".to_owned(),
            Kind::SWITCH_BEGAN => "its standby is to take over".to_owned(),
            Kind::SWITCHED => "has taken over".to_owned(),
            Kind::SWITCH_FAILED => with("does not take over", &self.text),
            Kind::STOP_BEGAN => {
                let begins =
                    format!("the stop begins ({})", self.reason.unwrap_or(StopReason::CALLER).word());
                match self.duration_ms {
                    Some(_) => after(&format!("{begins}, within")),
                    None => format!("{begins}, its caller counts the time"),
                }
            }
            Kind::POD_RESTART => {
                let restarts = with("the pod restarts", &self.text);
                match self.duration_ms {
                    Some(0) | None => restarts,
                    Some(_) => after(&format!("{restarts}, and starts again not before")),
                }
            }
            Kind::LAST_CALL => "last call: what is left gets its stop signal".to_owned(),
            Kind::BUDGET_SPENT => "the budget is spent: what is left is killed".to_owned(),
            Kind::STOP_ENDED => "the stop has ended".to_owned(),
        }
    }
}

/// The events of a pod as sentences. For people the end of a program and the end of its container are one event, so it
/// is one sentence.
#[derive(Debug, Default)]
pub struct Sentences {
    /// For each container whose program has ended and has not been restarted: when it ended, and its exit code.
    exits: BTreeMap<String, (u64, u32)>,
}

impl Sentences {
    /// An event as a sentence; `None` if an earlier sentence has said all of it.
    pub fn next(&mut self, event: &EventReport) -> Option<String> {
        let id = || event.id.clone().or_else(|| event.container.clone()).unwrap_or_default();
        match (event.kind, event.code) {
            (Kind::EXITED, Some(code)) => drop(self.exits.insert(id(), (event.monotonic_ms, code))),
            (Kind::CREATED | Kind::STARTING, _) => drop(self.exits.remove(&id())),
            (Kind::STOPPED, Some(code)) => {
                let printed = self.exits.remove(&id()).filter(|(_, printed)| *printed == code);
                return match (printed, event.shown_code) {
                    (Some(_), Some(shown)) if shown != code => {
                        Some(format!("shown to its caller as {shown}"))
                    }
                    (Some((at, _)), _) if event.monotonic_ms < at + AT_ONCE_MS => None,
                    // Such as the end of an init, which podshim hides from a caller that would start it again.
                    (Some(_), _) => Some("its end is shown to its caller".to_owned()),
                    (None, _) => Some(event.sentence()),
                };
            }
            _ => {}
        }
        Some(event.sentence())
    }
}

/// A container that ends within so many milliseconds of its program ended together with it.
const AT_ONCE_MS: u64 = 1000;

/// A duration for people.
pub fn duration(milliseconds: u64) -> String {
    DurationText(Duration::from_millis(milliseconds)).to_string()
}

/// The time of day of an event, in UTC: `HH:MM:SS.mmm`.
pub fn time_of_day(wall_ms: i64) -> String {
    let milliseconds = wall_ms.rem_euclid(86_400_000);
    let seconds = milliseconds / 1000;
    format!("{:02}:{:02}:{:02}.{:03}", seconds / 3600, seconds / 60 % 60, seconds % 60, milliseconds % 1000)
}

/// The day of an event, in UTC: `YYYY-MM-DD`.
pub fn date(wall_ms: i64) -> String {
    let (year, month, day) = civil_date(u64::try_from(wall_ms.div_euclid(86_400_000)).unwrap_or_default());
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_masked_code_is_shown_with_the_real_one() {
        let event = |code, shown_code| {
            EventReport::of(Event { kind: Kind::STOPPED.into(), code, shown_code, ..Default::default() })
        };
        assert_eq!(event(Some(143), Some(0)).sentence(), "ended with 143, shown as 0");
        assert_eq!(event(Some(0), Some(0)).sentence(), "ended with 0");
    }

    #[test]
    fn an_end_is_reported_once() {
        let event = |kind: Kind, at: u64, code, shown_code| {
            let name = "proxy".to_owned();
            EventReport::of(Event {
                kind: kind.into(),
                name,
                monotonic_ms: at,
                code,
                shown_code,
                ..Default::default()
            })
        };
        let exited = |at, code| event(Kind::EXITED, at, Some(code), None);
        let stopped = |at, code, shown| event(Kind::STOPPED, at, Some(code), Some(shown));
        let sentences = |events: &[EventReport]| {
            let mut sentences = Sentences::default();
            events.iter().filter_map(|event| sentences.next(event)).collect::<Vec<_>>()
        };
        assert_eq!(sentences(&[exited(5, 0), stopped(5, 0, 0)]), ["exited with 0"]);
        assert_eq!(
            sentences(&[exited(5, 143), stopped(6, 143, 0)]),
            ["exited with 143", "shown to its caller as 0"]
        );
        assert_eq!(
            sentences(&[exited(5, 0), stopped(9000, 0, 0)]),
            ["exited with 0", "its end is shown to its caller"]
        );
        assert_eq!(sentences(&[stopped(5, 143, 143)]), ["ended with 143"], "of one that was held");
        let again = event(Kind::STARTING, 6, None, None);
        assert_eq!(
            sentences(&[exited(5, 1), again, stopped(7, 1, 1)]),
            ["exited with 1", "starting", "ended with 1"]
        );
    }

    /// A shim of the next release may report kinds of events that this command does not know.
    #[test]
    fn an_unknown_kind_is_not_an_error() {
        assert_eq!(EventReport::of(Event::default()).kind, Kind::UNKNOWN);
    }

    #[test]
    fn a_time_of_day_is_that_of_utc() {
        assert_eq!(time_of_day(1_700_000_000_123), "22:13:20.123");
        assert_eq!(date(1_700_000_000_123), "2023-11-14");
        assert_eq!([date(0), date(951_782_400_000), date(-1)], ["1970-01-01", "2000-02-29", "1970-01-01"]);
    }
}
