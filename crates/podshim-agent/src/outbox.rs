//! What is not written yet: bounded, and of two states the newer one.
//!
//! Owns the bounds and the node's token bucket. An API server that is away for an hour finds the state of now when it comes back: what is
//! not so any more, and what happened long ago, is not written. Knows no clock and sends nothing.

mod queue;

use std::time::Duration;

pub use self::queue::Next;
use self::queue::Queue;
use crate::bucket::Bucket;
use crate::conditions::ConditionPatch;
use crate::report::{Report, Topic};
use crate::story::Now;

/// How many reports wait at most: a kilobyte each.
const LONGEST: usize = 1000;
/// How many events the node writes at once, and how many a second after that.
const BURST: u32 = 100;
const EVERY: Duration = Duration::from_millis(100);
/// The same of conditions: the pods of a full node may start together.
const CONDITIONS_BURST: u32 = 250;
const CONDITIONS_EVERY: Duration = Duration::from_millis(50);

/// What waits to be written.
#[derive(Debug)]
pub struct Outbox {
    reports: Queue<Topic, Report>,
    conditions: Queue<String, ConditionPatch>,
    bucket: Bucket,
    conditions_bucket: Bucket,
    dropped: u64,
}

impl Default for Outbox {
    fn default() -> Self {
        Self {
            reports: Queue::default(),
            conditions: Queue::default(),
            bucket: Bucket::new(BURST, EVERY),
            conditions_bucket: Bucket::new(CONDITIONS_BURST, CONDITIONS_EVERY),
            dropped: 0,
        }
    }
}

impl Outbox {
    /// Adds a report. One about the same that waits is not written; if too many wait, the oldest is not.
    pub fn add_report(&mut self, report: Report) {
        self.reports.add(report.topic.clone(), report);
        let dropped = self.reports.bound(LONGEST);
        self.count(dropped);
    }

    /// What it says is not so any more. If it is on its way, it is not sent again.
    pub fn withdraw(&mut self, topic: &Topic) {
        self.reports.remove(topic);
    }

    /// Adds a pod's condition, in the place of an older one.
    pub fn add_condition(&mut self, patch: ConditionPatch) {
        self.conditions.add(patch.pod.uid.clone(), patch);
    }

    /// The pod is gone: nothing is written about it.
    pub fn forget(&mut self, uid: &str) {
        self.reports.retain(|topic| topic.uid != uid);
        self.conditions.retain(|own| own != uid);
    }

    /// The next report. It is on its way until [`Outbox::report_answered`] or [`Outbox::give_back_report`].
    pub fn next_report(&mut self, now: Now) -> Next<Report> {
        let stale = self.reports.drop_waiting(|report| !report.is_stale(now.wall_ms));
        self.count(stale);
        bounded(&mut self.reports, &mut self.bucket, now.run)
    }

    /// The next condition. It is on its way until [`Outbox::condition_answered`] or [`Outbox::give_back_condition`].
    pub fn next_condition(&mut self, now: Now) -> Next<ConditionPatch> {
        bounded(&mut self.conditions, &mut self.conditions_bucket, now.run)
    }

    /// The request of a report has its answer.
    pub fn report_answered(&mut self, report: &Report) {
        self.reports.answered(&report.topic);
    }

    /// The request of a condition has its answer.
    pub fn condition_answered(&mut self, patch: &ConditionPatch) {
        self.conditions.answered(&patch.pod.uid);
    }

    /// A report that could not be written waits again, unless it was withdrawn or a newer one waits.
    pub fn give_back_report(&mut self, report: &Report, not_before: Duration) {
        self.reports.give_back(&report.topic, not_before);
    }

    /// The same of a condition.
    pub fn give_back_condition(&mut self, patch: &ConditionPatch, not_before: Duration) {
        self.conditions.give_back(&patch.pod.uid, not_before);
    }

    /// One more report is not written.
    pub fn count_dropped(&mut self) {
        self.count(1);
    }

    /// How many reports were not written because of a bound.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    fn count(&mut self, dropped: usize) {
        self.dropped += u64::try_from(dropped).unwrap_or(u64::MAX);
    }
}

fn bounded<K: Clone + Ord, T: Clone>(queue: &mut Queue<K, T>, bucket: &mut Bucket, now: Duration) -> Next<T> {
    match queue.first(now) {
        Next::Send(key) if bucket.take(now) => queue.send(&key),
        Next::Send(_) => Next::Wait(bucket.next(now)),
        Next::Wait(until) => Next::Wait(until),
        Next::Idle => Next::Idle,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{PodName, Reason, STALE_MS};
    use crate::story::started::{Started, StartedReason};

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
            outbox.report_answered(&report);
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

    fn next(outbox: &mut Outbox, at: Now) -> Report {
        let Next::Send(report) = outbox.next_report(at) else { panic!("{outbox:?}") };
        report
    }

    #[test]
    fn what_was_refused_waits_and_lets_others_pass() {
        let mut outbox = Outbox::default();
        outbox.add_report(report("u", "a", "first"));
        let first = next(&mut outbox, now(0));
        outbox.add_report(report("u", "b", "second"));
        outbox.give_back_report(&first, now(30).run);
        assert_eq!(sent(&mut outbox, now(0)), ["second"]);
        assert_eq!(outbox.next_report(now(0)), Next::Wait(now(30).run));
        outbox.add_report(report("u", "a", "newer"));
        outbox.give_back_report(&first, now(60).run);
        assert_eq!(sent(&mut outbox, now(1)), ["newer"]);
    }

    /// Its request hangs meanwhile: what is over is not written when the API server answers again.
    #[test]
    fn what_is_on_its_way_can_be_withdrawn() {
        let mut outbox = Outbox::default();
        for uid in ["u", "gone"] {
            outbox.add_report(report(uid, "a", uid).while_so());
        }
        let reports = [next(&mut outbox, now(0)), next(&mut outbox, now(0))];
        assert_eq!(outbox.next_report(now(0)), Next::Idle, "each is sent once");
        outbox.withdraw(&reports[0].topic);
        outbox.forget("gone");
        for report in &reports {
            outbox.give_back_report(report, Duration::ZERO);
        }
        assert_eq!(outbox.next_report(now(1)), Next::Idle);
    }

    /// A newer one that came while the older one was on its way is sent, too.
    #[test]
    fn an_answer_is_that_of_what_was_sent() {
        let mut outbox = Outbox::default();
        outbox.add_report(report("u", "a", "older"));
        let older = next(&mut outbox, now(0));
        outbox.add_report(report("u", "a", "newer"));
        outbox.report_answered(&older);
        assert_eq!(sent(&mut outbox, now(0)), ["newer"]);
    }

    #[test]
    fn the_conditions_of_a_node_are_bounded() {
        let mut outbox = Outbox::default();
        for number in 0..CONDITIONS_BURST + 10 {
            let pod = PodName { uid: format!("u-{number}"), ..PodName::default() };
            let started = Started { reason: StartedReason::Held, message: String::new() };
            outbox.add_condition(ConditionPatch { pod, started, since_ms: 0 });
        }
        let mut count = 0;
        while let Next::Send(patch) = outbox.next_condition(now(0)) {
            outbox.condition_answered(&patch);
            count += 1;
        }
        assert_eq!((count, outbox.next_condition(now(0))), (CONDITIONS_BURST, Next::Wait(CONDITIONS_EVERY)));
    }
}
