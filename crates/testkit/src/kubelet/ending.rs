//! The end of a pod: all containers killed in parallel, then the sandbox.
//!
//! Owns deletion, eviction and what a kubelet does when nothing is left to run. A kubelet with native sidecars kills in
//! an order (`termination order`).

use std::collections::BTreeSet;
use std::time::Duration;

use pod_lifecycle::{ContainerId, PodTime};

use super::cri::{CallEnd, CallId};
use super::order::{EndOrder, Ending, Waiting};
use super::setup::{LEAST_GRACE, SpecPart};
use super::{Kubelet, WorkerState};

/// The time an end may take beyond its grace and the two seconds that a kubelet adds: a shim delivers an early SIGKILL
/// 1.5 s later (T7), and each call has its latency.
const SLACK: Duration = Duration::from_secs(2);

impl Kubelet {
    /// Orders the end of the pod; a second time with a shorter grace.
    pub(super) fn order_end(&mut self, now: PodTime, order: EndOrder) {
        if matches!(self.worker, WorkerState::Over) {
            return;
        }
        let again = self.ending.is_some();
        let ending = self.ending.get_or_insert_with(|| Ending::new(None));
        ending.order = Some(order);
        match self.worker {
            // Both ends run side by side; the second one sends no second stop signal.
            WorkerState::Ending if again => self.kill_all(now),
            // The end begins once the sync has ended.
            WorkerState::Syncing(_) | WorkerState::Ending | WorkerState::Down | WorkerState::Over => {}
            WorkerState::Idle => self.due = now,
        }
    }

    /// Begins the end.
    pub(super) fn end(&mut self, now: PodTime) {
        self.worker = WorkerState::Ending;
        let order = self.ending.take().and_then(|ending| ending.order);
        self.ending = Some(Ending::new(order));
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
        let (mut calls, mut waiting) = (BTreeSet::new(), Vec::new());
        for id in &running {
            self.ledger.killed.insert(id.clone());
            let begin = now + self.latency();
            let (hook, timeout) = match order {
                Some(EndOrder::Evict) => (Duration::ZERO, Duration::ZERO),
                _ => self.shares_of(id, grace),
            };
            if !grace.is_zero() && self.part_of(id) == Some(SpecPart::Sidecar) {
                let from = begin + hook;
                waiting.push(Waiting { id: id.clone(), from, until: from + grace.saturating_sub(hook) });
                continue;
            }
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
            let by = now + grace + LEAST_GRACE + SLACK;
            ending.by = Some(ending.by.map_or(by, |earlier| earlier.min(by)));
        }
        ending.calls.extend(calls);
        ending.waiting.extend(waiting);
        self.take_turns(now);
    }

    fn part_of(&self, id: &ContainerId) -> Option<SpecPart> {
        self.cri.listed().get(id).map(|listed| self.setup.containers[listed.container].part)
    }

    /// When the next sidecar is killed, even if others still run.
    pub(super) fn next_turn_at(&self) -> Option<PodTime> {
        self.ending.iter().flat_map(|ending| &ending.waiting).map(|waiting| waiting.until).min()
    }

    /// Kills the sidecars whose turn it is: all mains and all later sidecars have ended (`termination order`).
    pub(super) fn take_turns(&mut self, now: PodTime) {
        let Some(mut ending) = self.ending.take() else { return };
        let (mut due, mut left) = (Vec::new(), Vec::new());
        for waiting in std::mem::take(&mut ending.waiting) {
            let turn = self.cri.listed().get(&waiting.id).is_none_or(|own| {
                let before = |other: &ContainerId| {
                    let other = self.cri.listed().get(other).map_or(own.container, |other| other.container);
                    let part = self.setup.containers[other].part;
                    part == SpecPart::Regular || (part == SpecPart::Sidecar && other > own.container)
                };
                !self.cri.listed().running().iter().any(before)
            });
            if turn || waiting.until <= now { due.push(waiting) } else { left.push(waiting) }
        }
        ending.waiting = left;
        for Waiting { id, from, until } in due {
            let begin = from.max(now);
            let timeout = until.since(begin).max(LEAST_GRACE);
            ending.calls.insert(self.cri.stop_container(begin, id, timeout));
        }
        self.ending = Some(ending);
        self.stop_sandbox_if_all_ended();
    }

    /// A call of the end has returned.
    pub(super) fn end_goes_on(&mut self, now: PodTime, call: CallId, end: CallEnd) {
        let Some(ending) = &mut self.ending else { return };
        if ending.sandbox == Some(call) {
            if end == CallEnd::Done {
                self.worker = WorkerState::Over;
                self.note("kubelet has ended the pod".to_owned());
            } else {
                self.worker = WorkerState::Idle;
                self.due = now + super::AFTER_FAILURE;
            }
            return;
        }
        ending.calls.remove(&call);
        self.take_turns(now);
    }

    fn stop_sandbox_if_all_ended(&mut self) {
        let all_ended = |ending: &&Ending| {
            ending.calls.is_empty() && ending.waiting.is_empty() && ending.sandbox.is_none()
        };
        if self.ending.as_ref().filter(all_ended).is_none() {
            return;
        }
        let mut left = self.cri.listed().running();
        self.random.shuffle(&mut left);
        let call = self.cri.stop_sandbox(left);
        if let Some(ending) = &mut self.ending {
            ending.sandbox = Some(call);
        }
    }

    /// A kubelet that restarts has forgotten its progress; it learns the order again.
    pub(super) fn forget_ending(&mut self) {
        let order = self.ending.take().and_then(|ending| ending.order);
        self.ending = order.map(|order| Ending::new(Some(order)));
    }

    pub(super) fn has_been_ordered_to_end(&self) -> bool {
        self.ending.as_ref().is_some_and(|ending| ending.order.is_some())
    }

    pub(super) fn must_have_ended_by(&self) -> Option<PodTime> {
        self.ending.as_ref().and_then(|ending| ending.by)
    }
}
