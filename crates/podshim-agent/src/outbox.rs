//! What is not written yet: bounded, and of two states the newer one.
//!
//! Owns the bounds and the node's token bucket. An API server that is away for an hour finds the state of now when it comes back: what is
//! not so any more, and what happened long ago, is not written. Knows no clock and sends nothing.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::bucket::Bucket;
use crate::conditions::ConditionPatch;
use crate::report::{Report, Topic};
use crate::story::Now;

/// How many reports wait at most: a kilobyte each.
const LONGEST: usize = 1000;
/// How many events the node writes at once, and how many a second after that.
const BURST: u32 = 100;
const EVERY: Duration = Duration::from_millis(100);

/// What waits to be written.
#[derive(Debug)]
pub struct Outbox {
    reports: BTreeMap<Topic, Waiting<Report>>,
    conditions: BTreeMap<String, Waiting<ConditionPatch>>,
    bucket: Bucket,
    /// The place of the next one.
    place: u64,
    dropped: u64,
}

/// One that waits: the lowest place goes first.
#[derive(Debug)]
struct Waiting<T> {
    place: u64,
    not_before: Duration,
    what: T,
}

/// What there is to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Next<T> {
    /// Send this.
    Send(T),
    /// Nothing until then.
    Wait(Duration),
    /// Nothing.
    Idle,
}

impl Default for Outbox {
    fn default() -> Self {
        Self {
            reports: BTreeMap::new(),
            conditions: BTreeMap::new(),
            bucket: Bucket::new(BURST, EVERY),
            place: 0,
            dropped: 0,
        }
    }
}

impl Outbox {
    /// Adds a report. One about the same that waits is not written; if too many wait, the oldest is not.
    pub fn add_report(&mut self, report: Report) {
        let place = self.next_place();
        self.reports
            .insert(report.topic.clone(), Waiting { place, not_before: Duration::ZERO, what: report });
        if self.reports.len() > LONGEST {
            let oldest = self.reports.iter().min_by_key(|(_, waiting)| waiting.place);
            if let Some(topic) = oldest.map(|(topic, _)| topic.clone()) {
                self.reports.remove(&topic);
                self.dropped += 1;
            }
        }
    }

    /// What it says is not so any more.
    pub fn withdraw(&mut self, topic: &Topic) {
        self.reports.remove(topic);
    }

    /// Adds a pod's condition, in the place of an older one.
    pub fn add_condition(&mut self, patch: ConditionPatch) {
        let place = self.next_place();
        let waiting = Waiting { place, not_before: Duration::ZERO, what: patch };
        self.conditions.insert(waiting.what.pod.uid.clone(), waiting);
    }

    /// The pod is gone: nothing is written about it.
    pub fn forget(&mut self, uid: &str) {
        self.reports.retain(|topic, _| topic.uid != uid);
        self.conditions.remove(uid);
    }

    /// The next report; it waits no more.
    pub fn next_report(&mut self, now: Now) -> Next<Report> {
        let before = self.reports.len();
        self.reports.retain(|_, waiting| !waiting.what.is_stale(now.wall_ms));
        self.dropped += u64::try_from(before - self.reports.len()).unwrap_or(u64::MAX);
        let topic = match first(&self.reports, now.run) {
            Next::Send(topic) => topic,
            Next::Wait(until) => return Next::Wait(until),
            Next::Idle => return Next::Idle,
        };
        if !self.bucket.take(now.run) {
            return Next::Wait(self.bucket.next(now.run));
        }
        self.reports.remove(&topic).map_or(Next::Idle, |waiting| Next::Send(waiting.what))
    }

    /// The next condition; it waits no more.
    pub fn next_condition(&mut self, now: Now) -> Next<ConditionPatch> {
        match first(&self.conditions, now.run) {
            Next::Send(uid) => {
                self.conditions.remove(&uid).map_or(Next::Idle, |waiting| Next::Send(waiting.what))
            }
            Next::Wait(until) => Next::Wait(until),
            Next::Idle => Next::Idle,
        }
    }

    /// A report that could not be written waits again, if no newer one does.
    pub fn give_back_report(&mut self, report: Report, not_before: Duration) {
        let place = self.next_place();
        self.reports.entry(report.topic.clone()).or_insert(Waiting { place, not_before, what: report });
    }

    /// A condition that could not be written waits again, if no newer one does.
    pub fn give_back_condition(&mut self, patch: ConditionPatch, not_before: Duration) {
        let place = self.next_place();
        self.conditions.entry(patch.pod.uid.clone()).or_insert(Waiting { place, not_before, what: patch });
    }

    /// One more report is not written.
    pub fn count_dropped(&mut self) {
        self.dropped += 1;
    }

    /// How many reports were not written because of a bound.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    fn next_place(&mut self) -> u64 {
        self.place += 1;
        self.place
    }
}

fn first<K: Clone + Ord, T>(waiting: &BTreeMap<K, Waiting<T>>, now: Duration) -> Next<K> {
    let ready = waiting.iter().filter(|(_, waiting)| waiting.not_before <= now);
    match ready.min_by_key(|(_, waiting)| waiting.place) {
        Some((key, _)) => Next::Send(key.clone()),
        None => waiting.values().map(|waiting| waiting.not_before).min().map_or(Next::Idle, Next::Wait),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{PodName, Reason, STALE_MS};

    fn now(seconds: u32) -> Now {
        Now { run: Duration::from_secs(1) * seconds, wall_ms: i64::from(seconds) * 1000 }
    }

    fn report(uid: &str, of: &str, note: &str) -> Report {
        let pod = PodName { uid: uid.to_owned(), ..PodName::default() };
        Report::new(&pod, Reason::GateFailed, of, &note, note)
    }

    fn sent(outbox: &mut Outbox, at: Now) -> Vec<String> {
        let mut notes = Vec::new();
        while let Next::Send(report) = outbox.next_report(at) {
            notes.push(report.note);
        }
        notes
    }

    #[test]
    fn the_newer_of_two_is_written_and_what_is_over_is_not() {
        let mut outbox = Outbox::default();
        for (of, note) in [("a", "a1"), ("b", "b1"), ("c", "c1"), ("a", "a2")] {
            outbox.add_report(report("u", of, note));
        }
        outbox.withdraw(&report("u", "b", "").topic);
        outbox.add_report(report("gone", "a", "of one that is gone"));
        outbox.forget("gone");
        assert_eq!(sent(&mut outbox, now(0)), ["c1", "a2"]);
        assert_eq!(outbox.dropped(), 0);
    }

    /// The API server is away for an hour, and many things happen.
    #[test]
    fn there_is_no_backlog() {
        let mut outbox = Outbox::default();
        outbox.add_report(report("u", "old", "old"));
        outbox.add_report(report("u", "so", "is so").while_so());
        for number in 0..LONGEST * 2 {
            outbox.add_report(report("u", &format!("of {number}"), "new").at(STALE_MS + 1000));
        }
        assert_eq!(outbox.dropped(), LONGEST as u64 + 2);
        let later = now(1200);
        assert_eq!(sent(&mut outbox, later).len(), BURST as usize, "the node's bucket");
        assert!(matches!(outbox.next_report(later), Next::Wait(until) if until == later.run + EVERY));
        assert_eq!(sent(&mut outbox, now(1201)).len(), 10);
        assert!(sent(&mut outbox, now(86_400)).is_empty());
        assert_eq!(outbox.dropped(), LONGEST as u64 * 2 + 2 - 110);
        assert_eq!(outbox.next_report(now(86_400)), Next::Idle);
    }

    #[test]
    fn what_was_refused_waits_and_lets_others_pass() {
        let mut outbox = Outbox::default();
        outbox.give_back_report(report("u", "a", "first"), now(30).run);
        outbox.add_report(report("u", "b", "second"));
        assert_eq!(sent(&mut outbox, now(0)), ["second"]);
        assert_eq!(outbox.next_report(now(0)), Next::Wait(now(30).run));
        outbox.add_report(report("u", "a", "newer"));
        outbox.give_back_report(report("u", "a", "first"), now(60).run);
        assert_eq!(sent(&mut outbox, now(1)), ["newer"]);
    }
}
