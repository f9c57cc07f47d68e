//! A pod's story: from what its shim shows to what is reported of it.
//!
//! A state machine: what a shim shows and the time go in, reports come out. It has no IO and knows no clock, and nothing in it is not in
//! a shim too: an agent that was restarted makes it again from Inspect and the events that the shim keeps. Decides nothing about the pod.

mod holds;
mod kubelets_own;
mod requests;
mod restarts;
mod series;
pub mod started;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use control_api::container::State;
use control_api::event::{Cause, Kind};
use control_api::{Budget, Event, InspectResponse, StopReason};
use pod_spec::DurationText;

use self::holds::{Due, Holds};
use self::kubelets_own::KubeletsOwn;
use self::requests::{Answer, Requests};
use self::restarts::{Restart, Restarts};
use self::series::{AllSeries, Occurrence};
use self::started::Started;
use crate::report::{PodName, Reason, Report, Severity, Topic};

/// Restarts in place, since it last ran for ten minutes, that are a crash loop: as many as R12's.
const CRASH_LOOP: u32 = 5;
/// A shim takes a container that no caller has created for a fault after a minute.
const FAULT_AFTER: Duration = Duration::from_secs(61);
const SIGKILL: u32 = 9;

/// The time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// By a clock that is never set, and that began long ago, as holds may be older than the agent: for what is due.
    pub run: Duration,
    /// In milliseconds since 1970: for what is written.
    pub wall_ms: i64,
}

/// What comes of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// To be written.
    Report(Report),
    /// It is not so any more: not to be written, if it is not yet.
    Withdraw(Topic),
    /// A report that is too old.
    Dropped,
}

/// The story of a pod that a shim serves.
#[derive(Debug)]
pub struct Story {
    /// The shim's own id.
    shim: String,
    pod: PodName,
    started_at_ms: i64,
    has_plan: bool,
    started: Started,
    /// The names of the containers that the shim knows now.
    known: BTreeSet<String>,
    holds: Holds,
    restarts: Restarts,
    requests: Requests,
    kubelets_own: KubeletsOwn,
    gate_failures: AllSeries,
    /// The containers whose crash loop is reported, each with its restarts before the loop.
    loops: BTreeMap<String, u32>,
    /// The stop that is reported.
    stop: Option<StopReason>,
    fault: String,
    /// When to ask for a fault.
    fault_due: Option<Duration>,
    asked: Asked,
    history: History,
}

/// What the events of an answer are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum History {
    /// Those of the first one may be from before the agent's start: an agent before this one has reported them.
    Before,
    /// What has happened since.
    Since,
}

/// What a shim is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Question {
    /// How the pod is now.
    Inspect,
    /// To restart the pod in place, for that value of the pod's annotation; and then how it is.
    Restart(String),
    /// To take these containers for the kubelet's own, which the pod's object says they are; and then how the pod is.
    KubeletsOwn(BTreeSet<String>),
}

/// Whether the shim is asked, and has not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    No,
    Yes,
}

impl Story {
    /// The story of a pod whose shim has answered first.
    #[must_use]
    pub fn of(seen: &InspectResponse) -> Self {
        Self {
            shim: seen.id.clone(),
            pod: PodName {
                uid: seen.pod_uid.clone(),
                namespace: seen.pod_namespace.clone(),
                name: seen.pod_name.clone(),
            },
            started_at_ms: seen.started_at_ms,
            has_plan: false,
            started: started::of(seen),
            known: BTreeSet::new(),
            holds: Holds::default(),
            restarts: Restarts::default(),
            requests: Requests::default(),
            kubelets_own: KubeletsOwn::default(),
            gate_failures: AllSeries::default(),
            loops: BTreeMap::new(),
            stop: None,
            fault: String::new(),
            fault_due: None,
            asked: Asked::No,
            history: History::Before,
        }
    }

    /// The pod in Kubernetes.
    #[must_use]
    pub fn pod(&self) -> &PodName {
        &self.pod
    }

    /// When its sandbox was made: of two of the same pod the newer one counts.
    #[must_use]
    pub fn started_at_ms(&self) -> i64 {
        self.started_at_ms
    }

    /// Whether the pod has a plan.
    #[must_use]
    pub fn has_plan(&self) -> bool {
        self.has_plan
    }

    /// The condition now of the pod with these containers.
    #[must_use]
    pub fn started(&self, containers: &BTreeSet<String>) -> Started {
        let missing = containers.difference(&self.known).next();
        started::with_all(self.started.clone(), missing.map(String::as_str))
    }

    /// What was reported as being so, and was not withdrawn.
    #[must_use]
    pub fn open(&self) -> BTreeSet<Topic> {
        let of = |reason, of: &str| Topic { uid: self.pod.uid.clone(), reason, of: of.to_owned() };
        let held = self.holds.reported().map(|name| of(Reason::Held, name));
        let looping = self.loops.keys().map(|name| of(Reason::CrashLoop, name));
        let fault = (!self.fault.is_empty()).then(|| of(Reason::PlanFault, ""));
        held.chain(looping).chain(fault).collect()
    }

    /// When the shim is to be asked again, if nothing happens until then.
    #[must_use]
    pub fn next_due(&self) -> Option<Duration> {
        if self.requests.is_due() || self.kubelets_own.are_due() {
            return Some(Duration::ZERO);
        }
        if self.asked == Asked::Yes {
            return None;
        }
        self.holds.next_due().into_iter().chain(self.fault_due).min()
    }

    /// What the shim is to be asked now: once, until it has answered.
    pub fn take_due(&mut self, now: Now) -> Option<Question> {
        self.next_due().filter(|due| *due <= now.run)?;
        self.asked = Asked::Yes;
        if let Some(names) = self.kubelets_own.take() {
            return Some(Question::KubeletsOwn(names));
        }
        Some(self.requests.take().map_or(Question::Inspect, Question::Restart))
    }

    /// What the pod's object asks for.
    pub fn want_restart(&mut self, value: Option<&str>, now: Now) -> Option<Report> {
        let answer = self.requests.want(value, now.wall_ms)?;
        Some(self.answered(answer).while_so())
    }

    /// The init and ephemeral containers of the pod's object.
    pub fn want_kubelets_own(&mut self, names: &BTreeSet<String>) {
        self.kubelets_own.want(names);
    }

    /// Whether the shim takes the names of such containers, so that it holds none of them.
    #[must_use]
    pub fn takes_kubelets_own(&self) -> bool {
        self.kubelets_own.are_taken()
    }

    /// Takes what has happened since, and the pod as it is now.
    pub fn see(&mut self, seen: &InspectResponse, events: &[Event], now: Now) -> Vec<Change> {
        self.has_plan |= seen.containers.iter().any(started::is_planned);
        self.started = started::of(seen);
        self.known = seen.containers.iter().map(|container| container.name.clone()).collect();
        self.asked = Asked::No;
        self.kubelets_own.see(seen);
        let mut changes = Vec::new();
        for event in events {
            match self.happened(event) {
                Some(report) if !report.is_stale(now.wall_ms) => changes.push(Change::Report(report)),
                Some(_) if self.history == History::Since => changes.push(Change::Dropped),
                Some(_) | None => {}
            }
        }
        let is_new = self.history == History::Since;
        self.history = History::Since;
        let answer = self.requests.see(seen).map(|answer| self.answered(answer));
        if !self.has_plan {
            changes.clear();
        }
        match answer {
            Some(report) if !report.is_stale(now.wall_ms) => changes.push(Change::Report(report)),
            Some(_) if is_new => changes.push(Change::Dropped),
            Some(_) | None => {}
        }
        if !self.has_plan {
            return changes;
        }
        self.see_holds(seen, now, &mut changes);
        self.see_loops(seen, now, &mut changes);
        self.see_fault(seen, events, now, &mut changes);
        changes
    }

    fn report(&self, reason: Reason, of: &str, occurrence: impl std::fmt::Display, note: &str) -> Report {
        Report::new(&self.pod, reason, of, &format_args!("{} {occurrence}", self.shim), note)
    }

    /// The report of an event.
    fn happened(&mut self, event: &Event) -> Option<Report> {
        let restart = self.restarts.see(event);
        let name = &event.name;
        let because =
            |text: &str| if event.text.is_empty() { String::new() } else { format!("{text}{}", event.text) };
        let (reason, note) = match event.kind.enum_value_or_default() {
            Kind::RUNNING => return restart.map(|restart| self.restarted(restart)),
            Kind::GATE_FAILED => return self.gate_failed(event),
            Kind::GATE_TIMED_OUT => (
                Reason::GateTimedOut,
                format!("{name:?} was held for the whole gate-timeout: it does not start"),
            ),
            Kind::SWITCHED => (Reason::Switched, format!("standby {name:?} has taken over")),
            Kind::SIGNALLED => (Reason::ForcedKill, forced_kill(event)?),
            Kind::POD_RESTART => {
                (Reason::PodRestarted, format!("the pod restarts in place{}", because(": ")))
            }
            Kind::BUDGET_SPENT => {
                (Reason::BudgetSpent, "the stop's time is over: podshim kills what is left".to_owned())
            }
            Kind::STOP_BEGAN => return self.stopped(event),
            Kind::STOP_ENDED => {
                self.stop = None;
                return None;
            }
            _ => return None,
        };
        Some(self.report(reason, name, event.sequence, &note).at(event.wall_ms))
    }

    fn answered(&self, answer: Answer) -> Report {
        let Answer { reason, value, at_ms, note } = answer;
        self.report(reason, &value, &value, &note).at(at_ms)
    }

    fn gate_failed(&mut self, event: &Event) -> Option<Report> {
        let name = &event.name;
        let because = if event.text.is_empty() { String::new() } else { format!(": {}", event.text) };
        let note = format!("the gate of {name:?} failed{because}");
        let occurrence = self.gate_failures.count(note.clone(), event)?;
        Some(self.in_series(Reason::GateFailed, name, occurrence, &note))
    }

    fn restarted(&self, restart: Restart) -> Report {
        let Restart { name, code, occurrence } = restart;
        let ended = code.map_or_else(|| "ended".to_owned(), |code| format!("exited with {code}"));
        let note = format!("{name:?} {ended}, and podshim started it again in place");
        let of = format!("{name} {}", code.unwrap_or_default());
        self.in_series(Reason::Restarted, &of, occurrence, &note)
    }

    fn in_series(&self, reason: Reason, of: &str, occurrence: Occurrence, note: &str) -> Report {
        let Occurrence { first, first_ms, series } = occurrence;
        Report { series, ..self.report(reason, of, first, note).at(first_ms) }
    }

    /// A stop's beginning is reported once, and again if its cause changes.
    fn stopped(&mut self, event: &Event) -> Option<Report> {
        let cause = event.stop_reason.enum_value_or_default();
        if self.stop.replace(cause) == Some(cause) {
            return None;
        }
        let reason = match cause {
            StopReason::INIT_FAILED => Reason::InitFailed,
            StopReason::FATAL => Reason::Fatal,
            // The event of the restart has the reason in words.
            StopReason::RESTART => return None,
            _ => Reason::StopBegan,
        };
        let within = match (event.duration_ms, event.budget.enum_value_or_default()) {
            (Some(time), _) => format!(", within {}", DurationText(Duration::from_millis(time))),
            (None, Budget::SPENT) => ", its time is over already".to_owned(),
            (None, Budget::LAST_CALL) => ", it is the last call".to_owned(),
            (None, Budget::NONE | Budget::CALLERS | Budget::ENFORCED) => {
                ", its caller counts the time".to_owned()
            }
        };
        let note = format!("the stop begins ({}){within}", cause.word());
        let report = self.report(reason, "", event.sequence, &note).at(event.wall_ms);
        let is_failure = cause == StopReason::SIDECAR_FAILED;
        Some(if is_failure { Report { severity: Severity::Warning, ..report } } else { report })
    }

    fn see_holds(&mut self, seen: &InspectResponse, now: Now, changes: &mut Vec<Change>) {
        let found = self.holds.see(seen, now.run);
        for Due { name, reason, after, occurrence } in found.due {
            let note = format!("{name:?} is held for {}, waiting for {reason}", DurationText(after));
            let report = self.report(Reason::Held, &name, occurrence, &note);
            changes.push(Change::Report(report.at(now.wall_ms).while_so()));
        }
        changes.extend(found.over.into_iter().map(|name| self.withdrawn(Reason::Held, name)));
    }

    fn see_loops(&mut self, seen: &InspectResponse, now: Now, changes: &mut Vec<Change>) {
        for container in &seen.containers {
            let name = &container.name;
            if container.restarts < CRASH_LOOP {
                if self.loops.remove(name).is_some() {
                    changes.push(self.withdrawn(Reason::CrashLoop, name.clone()));
                }
                continue;
            }
            let before = container.restarts_total.unwrap_or_default().saturating_sub(container.restarts);
            let waits = container.state.enum_value_or_default() == State::BACKING_OFF;
            if !waits || self.loops.insert(name.clone(), before) == Some(before) {
                continue;
            }
            let code = container.real_exit_code.map(|code| format!(", last with {code}"));
            let next = container.restart_in_ms.map(Duration::from_millis);
            let next =
                next.map(|next| format!("; next in {}", DurationText(Duration::from_secs(next.as_secs()))));
            let note = format!(
                "podshim started {name:?} again {} times in place, and it ended each time{}{}",
                container.restarts,
                code.unwrap_or_default(),
                next.unwrap_or_default(),
            );
            let report = self.report(Reason::CrashLoop, name, before, &note);
            changes.push(Change::Report(report.at(now.wall_ms).while_so()));
        }
    }

    fn see_fault(&mut self, seen: &InspectResponse, events: &[Event], now: Now, changes: &mut Vec<Change>) {
        let is_missing = seen.containers.iter().any(|container| {
            started::is_planned(container) && container.state.enum_value_or_default() == State::NOT_CREATED
        });
        let was_created = events.iter().any(|event| event.kind.enum_value_or_default() == Kind::CREATED);
        self.fault_due = match self.fault_due {
            _ if !is_missing => None,
            _ if was_created => Some(now.run + FAULT_AFTER),
            due => due.filter(|due| *due > now.run),
        };
        if seen.fault == self.fault {
            return;
        }
        self.fault.clone_from(&seen.fault);
        changes.push(if seen.fault.is_empty() {
            self.withdrawn(Reason::PlanFault, String::new())
        } else {
            let report = self.report(Reason::PlanFault, "", &seen.fault, &seen.fault);
            Change::Report(report.at(now.wall_ms).while_so())
        });
    }

    fn withdrawn(&self, reason: Reason, of: String) -> Change {
        Change::Withdraw(Topic { uid: self.pod.uid.clone(), reason, of })
    }
}

/// The note on a SIGKILL that podshim decided on.
fn forced_kill(event: &Event) -> Option<String> {
    let cause = event.cause.enum_value_or_default();
    let is_forced = event.signal == SIGKILL && matches!(cause, Cause::BUDGET | Cause::GRACE);
    is_forced.then(|| format!("podshim killed {:?}: {}", event.name, cause.because()))
}

#[cfg(test)]
mod tests;
