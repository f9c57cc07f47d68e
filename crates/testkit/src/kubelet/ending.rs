//! The end of a pod: all containers killed in parallel, then the sandbox.
//!
//! Owns deletion, eviction and what a kubelet does when nothing is left to run. The kills of a kubelet that knows
//! sidecars have an order (`termination order`).

use std::collections::BTreeSet;
use std::time::Duration;

use pod_lifecycle::PodTime;

use super::cri::CallId;
use super::{Kubelet, Work};

/// Why and how a pod ends.
#[derive(Clone, Debug)]
pub(super) struct Ending {
    /// `None`: nothing is left to run.
    pub(super) order: Option<EndOrder>,
    /// When all containers must have ended; of an end that somebody has ordered.
    pub(super) by: Option<PodTime>,
    calls: BTreeSet<CallId>,
    sandbox: Option<CallId>,
}

/// How somebody ends a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndOrder {
    /// Deletion with that grace.
    Delete(Duration),
    /// Eviction: SIGKILL for all.
    Evict,
}

/// What a deletion may take beyond its grace and the two seconds that a kubelet adds: a shim answers an early SIGKILL
/// 1.5 s later (T7), the sandbox is stopped last, and each call has its latency.
const SLACK: Duration = Duration::from_secs(6);

impl Kubelet {
    /// Somebody ends the pod; a second time with a shorter grace.
    pub(super) fn order_end(&mut self, now: PodTime, order: EndOrder) {
        if matches!(self.work, Work::Over) {
            return;
        }
        let again = self.ending.is_some();
        let ending = self.ending.get_or_insert_with(|| Ending {
            order: None,
            by: None,
            calls: BTreeSet::new(),
            sandbox: None,
        });
        ending.order = Some(order);
        match self.work {
            // Both run side by side; the second one does not signal again.
            Work::Ending if again => self.kill_all(now),
            // Once the sync has ended.
            Work::Syncing(_) | Work::Ending | Work::Down | Work::Over => {}
            Work::Idle => self.due = now,
        }
    }

    /// Begins the end.
    pub(super) fn end(&mut self, now: PodTime) {
        self.work = Work::Ending;
        let order = self.ending.take().and_then(|ending| ending.order);
        self.ending = Some(Ending { order, by: None, calls: BTreeSet::new(), sandbox: None });
        self.kill_all(now);
    }

    fn kill_all(&mut self, now: PodTime) {
        let order = self.ending.as_ref().and_then(|ending| ending.order);
        let grace = match order {
            None => self.setup.grace,
            Some(EndOrder::Delete(grace)) => grace,
            Some(EndOrder::Evict) => Duration::ZERO,
        };
        let mut running = self.cri.listed().running();
        self.random.shuffle(&mut running);
        let mut calls = BTreeSet::new();
        for id in &running {
            let begin = now + self.latency();
            let (hook, timeout) = match order {
                Some(EndOrder::Evict) => (Duration::ZERO, Duration::ZERO),
                _ => self.shares_of(id, grace),
            };
            calls.insert(self.cri.stop_container(begin + hook, id.clone(), timeout));
        }
        let what = match order {
            None => "has nothing left to run".to_owned(),
            Some(EndOrder::Delete(grace)) => format!("deletes the pod within {grace:?}"),
            Some(EndOrder::Evict) => "evicts the pod".to_owned(),
        };
        self.note(format!("kubelet {what}"));
        let Some(ending) = &mut self.ending else { return };
        if order.is_some() {
            let by = now + grace + SLACK;
            ending.by = Some(ending.by.map_or(by, |earlier| earlier.min(by)));
        }
        ending.calls.extend(calls);
        self.stop_sandbox_if_all_ended();
    }

    /// A call of the end has ended.
    pub(super) fn end_goes_on(&mut self, now: PodTime, call: CallId, succeeded: bool) {
        let Some(ending) = &mut self.ending else { return };
        if ending.sandbox == Some(call) {
            if succeeded {
                self.work = Work::Over;
                self.note("kubelet has ended the pod".to_owned());
            } else {
                self.work = Work::Idle;
                self.due = now + super::AFTER_FAILURE;
            }
            return;
        }
        ending.calls.remove(&call);
        self.stop_sandbox_if_all_ended();
    }

    fn stop_sandbox_if_all_ended(&mut self) {
        let Some(ending) = self.ending.as_ref().filter(|ending| ending.calls.is_empty()) else { return };
        if ending.sandbox.is_some() {
            return;
        }
        let mut left = self.cri.listed().running();
        self.random.shuffle(&mut left);
        let call = self.cri.stop_sandbox(left);
        if let Some(ending) = &mut self.ending {
            ending.sandbox = Some(call);
        }
    }

    /// A kubelet that restarts has forgotten how far it was; what was ordered it learns again.
    pub(super) fn forget_ending(&mut self) {
        self.ending = self.ending.take().filter(|ending| ending.order.is_some()).map(|ending| Ending {
            calls: BTreeSet::new(),
            sandbox: None,
            by: None,
            ..ending
        });
    }

    pub(super) fn has_been_ordered_to_end(&self) -> bool {
        self.ending.as_ref().is_some_and(|ending| ending.order.is_some())
    }

    pub(super) fn must_have_ended_by(&self) -> Option<PodTime> {
        self.ending.as_ref().and_then(|ending| ending.by)
    }
}
