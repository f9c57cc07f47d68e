//! The API server: the node's pods come from it, events and conditions go to it.
//!
//! Owns the requests, their limits, and when a failed one is tried again. Nothing waits for the API server but what is written to it.
//! Decides nothing of what is written: `outbox` has it.

mod request;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use k8s_openapi::api::core::v1::Pod;
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

/// How long a request may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// An API server that gives no answer is tried again after this long, and then after twice as long, up to [`LONGEST_PAUSE`].
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// A condition that the API server refuses is tried again after this long: rights may be given later.
const REFUSED_PAUSE: Duration = Duration::from_secs(60);
/// How many pods come in one answer: it bounds the agent's memory.
const PAGE: u32 = 50;

/// What comes from the API server.
#[derive(Debug)]
pub enum FromCluster {
    /// A change of the pods of this node.
    Pods(Box<watcher::Event<Pod>>),
    /// It has taken a condition.
    Taken(ConditionPatch),
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
        let mut events = watcher(Api::<Pod>::all(self.client), config).default_backoff().boxed();
        let mut complaint = Complaint::default();
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    complaint.answered();
                    if self.found.send(FromCluster::Pods(Box::new(event))).await.is_err() {
                        return;
                    }
                }
                Err(error) => complaint.failed(&format!("cannot watch the pods: {error}")),
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
            sleep(line.pause).await;
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
            sleep(line.pause).await;
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
        match verdict(sent) {
            Verdict::Taken | Verdict::Gone => line.answered(),
            Verdict::Refused(why) => {
                line.answered();
                line.complaint.failed(&format!("the API server refuses an event: {why}"));
                self.shared.with(Outbox::count_dropped);
            }
            Verdict::NoAnswer(why) => {
                line.no_answer(&why);
                self.shared.with(|outbox| outbox.give_back_report(report, Duration::ZERO));
            }
        }
    }

    async fn send_condition(&self, patch: ConditionPatch, line: &mut Line) {
        let sent = timeout(ANSWER_LIMIT, request::write_condition(&self.client, &patch)).await;
        match verdict(sent) {
            Verdict::Taken => {
                line.answered();
                let _ = self.found.send(FromCluster::Taken(patch)).await;
            }
            Verdict::Gone => line.answered(),
            Verdict::Refused(why) => {
                line.answered();
                line.complaint.failed(&format!("the API server refuses a condition: {why}"));
                let again = self.clock.now().run + REFUSED_PAUSE;
                self.shared.with(|outbox| outbox.give_back_condition(patch, again));
            }
            Verdict::NoAnswer(why) => {
                line.no_answer(&why);
                self.shared.with(|outbox| outbox.give_back_condition(patch, Duration::ZERO));
            }
        }
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

    fn no_answer(&mut self, why: &str) {
        self.pause = (self.pause * 2).clamp(PAUSE, LONGEST_PAUSE);
        self.complaint.failed(&format!("the API server gives no answer: {why}"));
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

    fn failed(&mut self, text: &str) {
        if self.0.as_deref() != Some(text) {
            eprintln!("podshim-agent: {text}");
            self.0 = Some(text.to_owned());
        }
    }
}
