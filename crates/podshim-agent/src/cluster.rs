//! The API server: the node's pods come from it, events and conditions go to it.
//!
//! Owns the requests, their limits, and when a failed one is tried again. Nothing waits for the API server but what is written to it.
//! Decides nothing of what is written: `outbox` has it.

mod request;

use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client};
use tokio::sync::{Notify, mpsc};
use tokio::time::{sleep, timeout};

use self::request::{Verdict, verdict};
use crate::clock::Clock;
use crate::conditions::ConditionPatch;
use crate::outbox::{Next, Outbox};
use crate::report::Report;
use crate::watched::WatchedPod;

/// How long a request may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// An API server that gives no answer is tried again after this long, and then after twice as long, up to [`LONGEST_PAUSE`].
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// What the API server does not allow, and a condition that it refuses, is tried again after this long: rights may be given later.
const REFUSED_PAUSE: Duration = Duration::from_secs(60);
/// How many pods come in one answer: it bounds the agent's memory, as each may have 1.5 MB, of which `watched` keeps little. For the same reason a list is read from etcd: an
/// API server that lists from its cache (resourceVersion 0) ignores the limit before Kubernetes 1.34.
const PAGE: u32 = 5;

/// What comes from the API server.
#[derive(Debug)]
pub enum FromCluster {
    /// A change of the pods of this node.
    Pods(Box<watcher::Event<WatchedPod>>),
    /// It has taken a condition, or has no such pod: then too the object has the last word.
    Answered(ConditionPatch),
}

/// What waits to be written, for those that add to it and those that send it.
#[derive(Debug, Default)]
pub struct Shared {
    outbox: Mutex<Outbox>,
    added_report: Notify,
    added_condition: Notify,
}

impl Shared {
    /// Changes what waits, and wakes what sends it.
    pub fn change<T>(&self, change: impl FnOnce(&mut Outbox) -> T) -> T {
        let changed = self.with(change);
        self.added_report.notify_one();
        self.added_condition.notify_one();
        changed
    }

    fn with<T>(&self, change: impl FnOnce(&mut Outbox) -> T) -> T {
        change(&mut self.outbox.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A connection to the API server.
#[derive(Clone)]
pub struct Cluster {
    client: Client,
    node: String,
    clock: Clock,
    shared: Arc<Shared>,
    found: mpsc::Sender<FromCluster>,
}

impl Cluster {
    /// Of the agent of that node.
    #[must_use]
    pub fn new(
        client: Client,
        node: &str,
        clock: Clock,
        shared: Arc<Shared>,
        found: mpsc::Sender<FromCluster>,
    ) -> Self {
        Self { client, node: node.to_owned(), clock, shared, found }
    }

    /// Passes on the pods of this node, for ever.
    pub async fn watch_pods(self) {
        let config =
            watcher::Config::default().fields(&format!("spec.nodeName={}", self.node)).page_size(PAGE);
        let mut events = watcher(Api::<WatchedPod>::all(self.client), config).default_backoff().boxed();
        let mut complaint = Complaint::default();
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    complaint.answered();
                    if self.found.send(FromCluster::Pods(Box::new(event))).await.is_err() {
                        return;
                    }
                }
                Err(error) => {
                    let text = format!("cannot watch the pods: {error}");
                    complaint.failed(&text, &text);
                }
            }
        }
    }

    /// Writes events, for ever.
    pub async fn send_reports(self) {
        let mut line = Line::default();
        loop {
            match self.shared.with(|outbox| outbox.next_report(self.clock.now())) {
                Next::Send(report) => self.send_report(report, &mut line).await,
                next => self.wait(&next, &self.shared.added_report).await,
            }
            sleep(line.jittered()).await;
        }
    }

    /// Writes conditions, for ever: events are not before them.
    pub async fn send_conditions(self) {
        let mut line = Line::default();
        loop {
            match self.shared.with(|outbox| outbox.next_condition(self.clock.now())) {
                Next::Send(patch) => self.send_condition(patch, &mut line).await,
                next => self.wait(&next, &self.shared.added_condition).await,
            }
            sleep(line.jittered()).await;
        }
    }

    async fn wait<T>(&self, next: &Next<T>, added: &Notify) {
        match next {
            Next::Wait(until) => {
                let _ = timeout(until.saturating_sub(self.clock.now().run), added.notified()).await;
            }
            Next::Idle | Next::Send(_) => added.notified().await,
        }
    }

    async fn send_report(&self, report: Report, line: &mut Line) {
        let sent = timeout(ANSWER_LIMIT, request::write_event(&self.client, &self.node, &report)).await;
        let again = match verdict(sent) {
            Verdict::Taken | Verdict::Gone => {
                line.answered();
                None
            }
            Verdict::Forbidden(why) => {
                line.refused("forbids an event", &why);
                Some(self.clock.now().run + REFUSED_PAUSE)
            }
            Verdict::Refused(why) => {
                line.refused("refuses an event", &why);
                self.shared.with(Outbox::count_dropped);
                None
            }
            Verdict::NoAnswer(why) => {
                line.no_answer(&why);
                Some(Duration::ZERO)
            }
        };
        self.shared.with(|outbox| match again {
            Some(not_before) => outbox.give_back_report(&report, not_before),
            None => outbox.report_answered(&report),
        });
    }

    async fn send_condition(&self, patch: ConditionPatch, line: &mut Line) {
        let sent = timeout(ANSWER_LIMIT, request::write_condition(&self.client, &patch)).await;
        let again = match verdict(sent) {
            Verdict::Taken | Verdict::Gone => {
                line.answered();
                None
            }
            Verdict::Forbidden(why) | Verdict::Refused(why) => {
                line.refused("refuses a condition", &why);
                Some(self.clock.now().run + REFUSED_PAUSE)
            }
            Verdict::NoAnswer(why) => {
                line.no_answer(&why);
                Some(Duration::ZERO)
            }
        };
        if let Some(not_before) = again {
            self.shared.with(|outbox| outbox.give_back_condition(&patch, not_before));
            return;
        }
        self.shared.with(|outbox| outbox.condition_answered(&patch));
        let _ = self.found.send(FromCluster::Answered(patch)).await;
    }
}

/// How one of the senders gets on.
#[derive(Debug, Default)]
struct Line {
    /// How long to wait before the next request.
    pause: Duration,
    complaint: Complaint,
}

impl Line {
    fn answered(&mut self) {
        self.pause = Duration::ZERO;
        self.complaint.answered();
    }

    /// It answers, and so the next request need not wait. The trouble is not over.
    fn refused(&mut self, what: &str, why: &str) {
        self.pause = Duration::ZERO;
        // The text names the object: once for all of them is enough.
        self.complaint.failed(what, &format!("the API server {what}: {why}"));
    }

    fn no_answer(&mut self, why: &str) {
        self.pause = (self.pause * 2).clamp(PAUSE, LONGEST_PAUSE);
        self.complaint.failed(why, &format!("the API server gives no answer: {why}"));
    }

    /// The pause, each agent's own: otherwise all nodes' agents would come back to an API server at the same moments.
    fn jittered(&self) -> Duration {
        // `RandomState` has other keys each time: it is the standard library's only source of randomness.
        let random = RandomState::new().hash_one(0_u8);
        let share = u32::try_from(random % 256).unwrap_or_default();
        self.pause + self.pause / 2 * share / 256
    }
}

/// What is in the log: not the same again and again.
#[derive(Debug, Default)]
struct Complaint(Option<String>);

impl Complaint {
    fn answered(&mut self) {
        if self.0.take().is_some() {
            eprintln!("podshim-agent: the API server answers again");
        }
    }

    fn failed(&mut self, about: &str, text: &str) {
        if self.0.as_deref() != Some(about) {
            eprintln!("podshim-agent: {text}");
            self.0 = Some(about.to_owned());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_does_not_end_the_trouble() {
        let mut line = Line::default();
        line.no_answer("away");
        line.refused("forbids an event", "web.1 is forbidden");
        assert_eq!((line.pause, line.complaint.0.as_deref()), (Duration::ZERO, Some("forbids an event")));
        line.refused("forbids an event", "web.2 is forbidden");
        line.answered();
        assert_eq!(line.complaint.0, None);
    }

    #[test]
    fn pauses_get_longer_and_are_not_alike() {
        let mut line = Line::default();
        assert_eq!(line.jittered(), Duration::ZERO);
        for _ in 0..10 {
            line.no_answer("away");
        }
        let pauses: Vec<Duration> = (0..50).map(|_| line.jittered()).collect();
        assert!(
            pauses.iter().all(|pause| (LONGEST_PAUSE..LONGEST_PAUSE * 3 / 2).contains(pause)),
            "{pauses:?}"
        );
        assert!(pauses.iter().any(|pause| *pause != pauses[0]), "{pauses:?}");
    }
}
