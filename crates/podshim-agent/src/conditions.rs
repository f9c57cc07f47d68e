//! When the condition of a pod is written.
//!
//! Owns what was sent, what the API server has taken, and what the pod's object shows. A pod that starts at once costs one request: a
//! reason that lasts less than a second is not written. Knows no clock and sends nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::object::{PodObject, ReadinessGate, Shown, Status};
use crate::report::PodName;
use crate::story::Now;
use crate::story::started::Started;

/// A condition that is false for another reason is written after this long.
const SETTLED_AFTER: Duration = Duration::from_secs(1);
/// A watch shows what was written within this time; later another program has written over it. Or the watch is behind, as that of an API
/// server with too much to do, which is not to get more of the same: each time it is written again the time doubles, up to [`LONGEST_WAIT`].
const SHOWN_WITHIN: Duration = Duration::from_secs(2);
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// A condition to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionPatch {
    /// Its pod.
    pub pod: PodName,
    /// The condition.
    pub started: Started,
    /// Since when it has this status, in milliseconds since 1970.
    pub since_ms: i64,
}

/// The conditions of the node's pods, by their uids.
#[derive(Debug, Default)]
pub struct Conditions(BTreeMap<String, Condition>);

#[derive(Debug)]
struct Condition {
    wanted: Started,
    wanted_since: Duration,
    shown: Option<Shown>,
    sent: Option<Sent>,
    /// How often it was written without being shown.
    unshown: u32,
}

#[derive(Debug)]
struct Sent {
    patch: ConditionPatch,
    /// When the API server answered.
    answered: Option<Duration>,
}

impl Conditions {
    /// What is so now. Returns what is to be written.
    pub fn want(&mut self, object: &PodObject, started: &Started, now: Now) -> Option<ConditionPatch> {
        let uid = &object.pod.uid;
        if object.gate == ReadinessGate::Absent {
            self.0.remove(uid);
            return None;
        }
        let condition = self.0.entry(uid.clone()).or_insert_with(|| Condition {
            wanted: started.clone(),
            wanted_since: now.run,
            shown: None,
            sent: None,
            unshown: 0,
        });
        if condition.wanted != *started {
            (condition.wanted, condition.wanted_since) = (started.clone(), now.run);
        }
        condition.shown.clone_from(&object.condition);
        if condition.is_sent_shown() {
            condition.unshown = 0;
        }
        condition.step(&object.pod, now)
    }

    /// The API server has taken what was sent last, or has no such pod. Perhaps it has: then the object goes on to show something else.
    pub fn answered(&mut self, patch: &ConditionPatch, now: Now) {
        let sent = self.0.get_mut(&patch.pod.uid).and_then(|condition| condition.sent.as_mut());
        if let Some(sent) = sent.filter(|sent| sent.patch == *patch) {
            sent.answered = Some(now.run);
        }
    }

    /// The pod is gone.
    pub fn forget(&mut self, uid: &str) {
        self.0.remove(uid);
    }

    /// When to ask again.
    #[must_use]
    pub fn next_due(&self, now: Now) -> Option<Duration> {
        self.0.values().filter_map(|condition| condition.due(now)).min()
    }
}

impl Condition {
    /// The condition that the object has, or will have.
    fn current(&self, now: Now) -> Option<Shown> {
        match &self.sent {
            Some(Sent { patch, answered })
                if answered.is_none_or(|at| now.run < at + self.shown_within()) =>
            {
                Some(shown_of(patch))
            }
            _ => self.shown.clone(),
        }
    }

    fn shown_within(&self) -> Duration {
        SHOWN_WITHIN.saturating_mul(1 << self.unshown.min(16)).min(LONGEST_WAIT)
    }

    fn is_sent_shown(&self) -> bool {
        let is_shown = |sent: &Sent| self.shown.as_ref().is_some_and(|shown| is_of(shown, &sent.patch));
        self.sent.as_ref().is_some_and(is_shown)
    }

    fn step(&mut self, pod: &PodName, now: Now) -> Option<ConditionPatch> {
        let current = self.current(now);
        let status = status_of(&self.wanted);
        let is_same = |shown: &Shown| {
            shown.status == status
                && shown.reason == self.wanted.reason.word()
                && shown.message == self.wanted.message
        };
        if current.as_ref().is_some_and(is_same) || self.settles(current.as_ref()) > now.run {
            return None;
        }
        // What is shown may be older than what was written.
        let written = self.sent.as_ref().map(|sent| shown_of(&sent.patch));
        let with_status = written.clone().into_iter().chain(current).find(|shown| shown.status == status);
        let patch = ConditionPatch {
            pod: pod.clone(),
            started: self.wanted.clone(),
            since_ms: with_status.and_then(|shown| shown.since_ms).unwrap_or(now.wall_ms),
        };
        if written.as_ref().is_some_and(is_same) {
            self.unshown = self.unshown.saturating_add(1);
        }
        self.sent = Some(Sent { patch: patch.clone(), answered: None });
        Some(patch)
    }

    /// From when on the wanted one is written: at once if the status changes.
    fn settles(&self, current: Option<&Shown>) -> Duration {
        let was_true = current.is_some_and(|shown| shown.status == Status::True);
        let at_once = self.wanted.reason.is_true() || was_true;
        if at_once { self.wanted_since } else { self.wanted_since + SETTLED_AFTER }
    }

    fn due(&self, now: Now) -> Option<Duration> {
        let current = self.current(now);
        let settles = self.settles(current.as_ref());
        let unshown = self.sent.as_ref().filter(|_| !self.is_sent_shown());
        let shows = unshown.and_then(|sent| Some(sent.answered? + self.shown_within()));
        shows.into_iter().chain([settles]).filter(|due| *due > now.run).min()
    }
}

fn is_of(shown: &Shown, patch: &ConditionPatch) -> bool {
    let sent = shown_of(patch);
    (&shown.status, &shown.reason, &shown.message) == (&sent.status, &sent.reason, &sent.message)
}

fn shown_of(patch: &ConditionPatch) -> Shown {
    Shown {
        status: status_of(&patch.started),
        reason: patch.started.reason.word().to_owned(),
        message: patch.started.message.clone(),
        since_ms: Some(patch.since_ms),
    }
}

/// The condition's status.
#[must_use]
pub fn status_of(started: &Started) -> Status {
    if started.reason.is_true() { Status::True } else { Status::False }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::story::started::StartedReason;

    fn object(condition: Option<Shown>) -> PodObject {
        let pod = PodName { uid: "u-1".to_owned(), ..PodName::default() };
        PodObject {
            pod,
            gate: ReadinessGate::Named,
            condition,
            containers: BTreeSet::new(),
            contradictions: Vec::new(),
            mistaken_mains: Vec::new(),
            kubelets_own: BTreeSet::new(),
            restart: None,
        }
    }

    fn started(reason: StartedReason) -> Started {
        Started { reason, message: reason.word().to_lowercase() }
    }

    fn now(tenths: u32) -> Now {
        Now { run: Duration::from_millis(100) * tenths, wall_ms: i64::from(tenths) * 100 }
    }

    /// What is written, with the time since when it is so, if the object shows nothing until then.
    fn written(steps: &[(u32, StartedReason)]) -> Vec<(StartedReason, i64)> {
        let mut conditions = Conditions::default();
        let want = |conditions: &mut Conditions, at, reason| {
            conditions
                .want(&object(None), &started(reason), now(at))
                .map(|it| (it.started.reason, it.since_ms))
        };
        steps.iter().filter_map(|(at, reason)| want(&mut conditions, *at, *reason)).collect()
    }

    #[test]
    fn a_pod_that_starts_at_once_costs_one_request() {
        use StartedReason::{Held, MainsRun, NotStarted};
        assert_eq!(written(&[(0, NotStarted), (3, Held), (9, MainsRun)]), [(MainsRun, 900)]);
    }

    #[test]
    fn a_reason_that_lasts_is_written_and_the_status_has_its_own_time() {
        use StartedReason::{Held, MainsRun, NotStarted, Stopping};
        let steps =
            [(0, NotStarted), (10, NotStarted), (20, Held), (30, Held), (50, MainsRun), (51, Stopping)];
        assert_eq!(written(&steps), [(NotStarted, 1000), (Held, 1000), (MainsRun, 5000), (Stopping, 5100)]);
    }

    #[test]
    fn a_restarted_agent_writes_nothing_that_is_there() {
        let shown = Shown {
            status: Status::True,
            reason: "MainsRun".to_owned(),
            message: "mainsrun".to_owned(),
            since_ms: Some(7),
        };
        let (mut conditions, object) = (Conditions::default(), object(Some(shown)));
        assert_eq!(conditions.want(&object, &started(StartedReason::MainsRun), now(0)), None);
    }

    /// Two agents at a roll-out: what the other one wrote late is written over.
    #[test]
    fn what_another_program_wrote_is_mended() {
        let mut conditions = Conditions::default();
        let runs = started(StartedReason::MainsRun);
        let patch = conditions.want(&object(None), &runs, now(0)).unwrap();
        conditions.answered(&patch, now(1));
        let late = Shown { status: Status::False, since_ms: Some(1), ..shown_of(&patch) };
        assert_eq!(
            conditions.want(&object(Some(late.clone())), &runs, now(2)),
            None,
            "the watch may be late"
        );
        assert_eq!(conditions.next_due(now(2)), Some(now(21).run));
        let again = conditions.want(&object(Some(late)), &runs, now(21)).unwrap();
        assert_eq!((again.started, again.since_ms), (runs.clone(), 0), "it has been so all the time");
        assert_eq!(conditions.want(&object(Some(shown_of(&patch))), &runs, now(60)), None);
        assert_eq!(conditions.next_due(now(60)), None);
    }

    /// A watch that is behind for ten minutes: the condition is not written every two seconds, and keeps its time.
    #[test]
    fn a_watch_that_is_behind_costs_few_requests() {
        let (mut conditions, runs) = (Conditions::default(), started(StartedReason::MainsRun));
        let mut written = Vec::new();
        for at in 0..6000 {
            if let Some(patch) = conditions.want(&object(None), &runs, now(at)) {
                conditions.answered(&patch, now(at));
                written.push((at / 10, patch.since_ms));
            }
        }
        assert_eq!(written, [0, 2, 6, 14, 30, 62, 126, 254, 510].map(|at| (at, 0)));
        let patch = conditions.want(&object(None), &started(StartedReason::Stopping), now(6000)).unwrap();
        assert_eq!(patch.since_ms, 600_000, "what is new is written at once");
        conditions.answered(&patch, now(6000));
        conditions.want(&object(Some(shown_of(&patch))), &patch.started, now(6001));
        assert!(conditions.want(&object(None), &patch.started, now(6021)).is_some(), "it has caught up");
    }

    /// A 404 or 409 of a pod that is there: the condition is not given up.
    #[test]
    fn what_the_api_server_has_not_taken_is_written_again() {
        let (mut conditions, runs) = (Conditions::default(), started(StartedReason::MainsRun));
        let patch = conditions.want(&object(None), &runs, now(0)).unwrap();
        conditions.answered(&patch, now(1));
        assert_eq!(conditions.next_due(now(1)), Some(now(21).run));
        assert_eq!(conditions.want(&object(None), &runs, now(21)), Some(patch));
    }

    #[test]
    fn a_pod_without_the_gate_costs_nothing() {
        let object = PodObject { gate: ReadinessGate::Absent, ..object(None) };
        assert_eq!(Conditions::default().want(&object, &started(StartedReason::MainsRun), now(0)), None);
    }
}
