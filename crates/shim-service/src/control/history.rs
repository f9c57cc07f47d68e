//! The pod's history: the newest events, and the callers that wait for the next one.
//!
//! Owns the bound on the events, their numbers and the callers' answers. What becomes an event is decided here from the pod's
//! actions; an event's time is that of the action's execution.

use std::collections::VecDeque;
use std::time::Duration;

use control_api::event::{Cause, Kind};
use control_api::{Event, EventsResponse, VERSION};
use pod_lifecycle::{Action, ContainerId, Milestone, Notice, Operation, PodTime, SignalCause, WallTime};
use protobuf::Message;

use super::inspection::{milliseconds, stop};
use crate::command::{Answer, LongPoll};

/// How many events are kept, and how many bytes of an event's text: a pod that restarts for months costs no more than one
/// that restarts for an hour. At most 100 kB, as a rule 20 kB. The start and the stop of four containers do not fill it.
const KEPT: usize = 256;
const LONGEST_TEXT: usize = 200;
/// How many callers may wait: one that has gone is not seen before its wait is over.
const MOST_WAITING: usize = 32;

/// The newest events of the pod.
#[derive(Debug, Default)]
pub(crate) struct History {
    /// Each as the bytes that a caller gets, without its number: a fifth of the message's size in memory.
    events: VecDeque<Box<[u8]>>,
    /// The number of the newest event.
    last: u64,
    waiting: Vec<Waiting>,
}

/// A caller that waits for the event after that one.
#[derive(Debug)]
struct Waiting {
    after: u64,
    answer: Answer<EventsResponse>,
}

impl History {
    /// Records the event of an action, if it has one. `name` gives the name of its container while the pod knows it.
    pub(crate) fn record<'a>(
        &mut self,
        action: &Action,
        (now, wall): (PodTime, WallTime),
        name: impl FnOnce(&ContainerId) -> Option<&'a str>,
    ) {
        let Some((container, mut event)) = event_of(action) else { return };
        if let Some(id) = container {
            // An event that comes after the container's delete has the name that the ones before have.
            event.name =
                name(id).map(str::to_owned).or_else(|| self.name_of(id.as_str())).unwrap_or_default();
            event.id = id.to_string();
        }
        event.wall_ms = i64::try_from(wall.0.as_millis()).unwrap_or(i64::MAX);
        event.monotonic_ms = milliseconds(now.since_epoch());
        shorten(&mut event.text);
        shorten(&mut event.failure);
        if self.events.len() == KEPT {
            self.events.pop_front();
        }
        self.last += 1;
        // invariant: a message of these few fields can be written.
        self.events.push_back(event.write_to_bytes().unwrap_or_default().into());
    }

    fn name_of(&self, id: &str) -> Option<String> {
        let events = self.events.iter().rev().filter_map(|bytes| Event::parse_from_bytes(bytes).ok());
        events.into_iter().find(|event| event.id == id).map(|event| event.name)
    }

    /// Answers the waiting callers that have an event to get.
    pub(crate) fn answer_waiting(&mut self) {
        let last = self.last;
        for waiting in self.waiting.extract_if(.., |waiting| waiting.after < last).collect::<Vec<_>>() {
            let _ = waiting.answer.send(Ok(self.after(waiting.after)));
        }
    }

    /// Answers with what came after an event: at once, or for a long poll when there is something.
    pub(crate) fn answer(&mut self, after: u64, long_poll: LongPoll, answer: Answer<EventsResponse>) {
        // Callers whose wait has timed out.
        self.waiting.retain(|waiting| !waiting.answer.is_closed());
        if after >= self.last && long_poll == LongPoll::Yes {
            if self.waiting.len() == MOST_WAITING {
                let oldest = self.waiting.remove(0);
                let _ = oldest.answer.send(Ok(EventsResponse { version: VERSION, ..Default::default() }));
            }
            return self.waiting.push(Waiting { after, answer });
        }
        let _ = answer.send(Ok(self.after(after)));
    }

    /// All events that are kept.
    pub(crate) fn all(&self) -> EventsResponse {
        self.after(0)
    }

    fn after(&self, after: u64) -> EventsResponse {
        let first = self.last + 1 - self.events.len() as u64;
        let newer = self.events.iter().zip(first..).filter(|(_, sequence)| *sequence > after);
        let events = newer.map(|(bytes, sequence)| {
            // invariant: this file wrote the bytes.
            Event { sequence, ..Event::parse_from_bytes(bytes).unwrap_or_default() }
        });
        EventsResponse {
            version: VERSION,
            events: events.collect(),
            lost: first.saturating_sub(after.saturating_add(1)),
            ..Default::default()
        }
    }
}

/// The event of an action and its container, without times.
fn event_of(action: &Action) -> Option<(Option<&ContainerId>, Event)> {
    let mut event = Event::new();
    let (container, kind) = match action {
        Action::Record { container, milestone } => (container.as_ref(), milestone_in(milestone, &mut event)),
        Action::Publish(Notice::Created { container, pid }) => {
            event.pid = *pid;
            (Some(container), Kind::CREATED)
        }
        Action::Publish(Notice::Deleted { container, .. }) => (Some(container), Kind::DELETED),
        Action::Publish(Notice::Paused { container }) => (Some(container), Kind::PAUSED),
        Action::Publish(Notice::Resumed { container }) => (Some(container), Kind::RESUMED),
        Action::Finish { container, shown, real } => {
            (event.code, event.shown_code) = (Some(real.code), Some(shown.code));
            (Some(container), Kind::STOPPED)
        }
        // Not the signals to execs: those of a kubelet's exec probes would fill the history.
        Action::Signal { target, signal, cause, .. } if target.exec.is_none() => {
            event.signal = signal.number().into();
            event.cause = cause_of(*cause).into();
            (Some(&target.container), Kind::SIGNALLED)
        }
        Action::Run { container, operation: Operation::Start | Operation::Restore, .. } => {
            (Some(container), Kind::STARTING)
        }
        Action::Run { container, operation: Operation::RunHook { hook, .. }, .. } => {
            (Some(container), with_text(&mut event, &hook.to_string(), Kind::HOOK_STARTED))
        }
        _ => return None,
    };
    event.kind = kind.into();
    Some((container, event))
}

/// Cuts an event's text to the bound.
fn shorten(text: &mut String) {
    let end = (0..=LONGEST_TEXT.min(text.len())).rev().find(|end| text.is_char_boundary(*end));
    text.truncate(end.unwrap_or_default());
}

fn milestone_in(milestone: &Milestone, event: &mut Event) -> Kind {
    match milestone {
        Milestone::Held { reason } => with_text(event, reason, Kind::HELD),
        Milestone::Running { pid } => {
            event.pid = *pid;
            Kind::RUNNING
        }
        Milestone::StartFailed { reason } => with_text(event, reason, Kind::START_FAILED),
        Milestone::GateOpened => Kind::GATE_OPENED,
        Milestone::GateFailed { reason } => with_text(event, reason, Kind::GATE_FAILED),
        Milestone::GateTimedOut => Kind::GATE_TIMED_OUT,
        Milestone::Exited { exit } => {
            event.code = Some(exit.code);
            Kind::EXITED
        }
        Milestone::RestartDue { delay } => with_duration(event, *delay, Kind::RESTART_DUE),
        Milestone::OutOfMemory => Kind::OUT_OF_MEMORY,
        Milestone::SignalHeld { signal } => {
            event.signal = signal.number().into();
            Kind::SIGNAL_HELD
        }
        Milestone::HookEnded { hook, failure } => {
            event.failure = failure.clone().unwrap_or_default();
            with_text(event, &hook.to_string(), Kind::HOOK_ENDED)
        }
        Milestone::SwitchBegan => Kind::SWITCH_BEGAN,
        Milestone::Switched => Kind::SWITCHED,
        Milestone::SwitchFailed { reason } => with_text(event, reason, Kind::SWITCH_FAILED),
        Milestone::StopBegan(began) => {
            let (reason, budget, left) = stop(began.clone());
            (event.stop_reason, event.budget) = (reason.into(), budget.into());
            if left.is_zero() { Kind::STOP_BEGAN } else { with_duration(event, left, Kind::STOP_BEGAN) }
        }
        Milestone::PodRestart { reason, delay } => {
            let kind = with_text(event, reason, Kind::POD_RESTART);
            with_duration(event, *delay, kind)
        }
        Milestone::LastCall => Kind::LAST_CALL,
        Milestone::BudgetSpent => Kind::BUDGET_SPENT,
        Milestone::StopEnded => Kind::STOP_ENDED,
    }
}

fn with_text(event: &mut Event, text: &str, kind: Kind) -> Kind {
    text.clone_into(&mut event.text);
    kind
}

fn with_duration(event: &mut Event, duration: Duration, kind: Kind) -> Kind {
    event.duration_ms = Some(milliseconds(duration));
    kind
}

/// What the core calls the cause of a signal, in the control API's terms.
pub(crate) fn cause_of(cause: SignalCause) -> Cause {
    match cause {
        SignalCause::Caller => Cause::BY_CALLER,
        SignalCause::Turn => Cause::TURN,
        SignalCause::Budget => Cause::BUDGET,
        SignalCause::Grace => Cause::GRACE,
        SignalCause::Restart => Cause::RESTART,
        SignalCause::NotRun => Cause::NOT_RUN,
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    fn record(history: &mut History, reason: &str) {
        let container = Some(ContainerId::from("c"));
        let milestone = Milestone::Held { reason: reason.to_owned() };
        let at = (PodTime::ZERO, WallTime::default());
        history.record(&Action::Record { container, milestone }, at, |_| Some("app"));
    }

    fn numbers(answer: &EventsResponse) -> Vec<u64> {
        answer.events.iter().map(|event| event.sequence).collect()
    }

    /// A pod that runs for months stays within the bound, and a caller learns how many events it has missed.
    #[test]
    fn the_history_is_bounded_and_counts_what_it_has_lost() {
        let mut history = History::default();
        assert_eq!((numbers(&history.after(0)), history.after(0).lost), (vec![], 0));
        for _ in 0..KEPT + 10 {
            record(&mut history, &"x\u{e4}".repeat(LONGEST_TEXT));
        }
        let all = history.after(0);
        assert_eq!((all.events.len(), all.lost), (KEPT, 10));
        assert_eq!((all.events[0].sequence, all.events[0].name.as_str()), (11, "app"));
        assert!(all.events.iter().all(|event| event.text.len() <= LONGEST_TEXT));
        let newest = KEPT as u64 + 10;
        assert_eq!(numbers(&history.after(newest - 2)), [newest - 1, newest]);
        assert_eq!(history.after(newest - 2).lost, 0);
        // A number from another shim's history.
        for after in [newest, newest + 5, u64::MAX] {
            assert_eq!((numbers(&history.after(after)), history.after(after).lost), (vec![], 0));
        }
    }

    /// The one that has waited longest makes room: it may ask again.
    #[test]
    fn the_number_of_waiting_callers_is_bounded() {
        let mut history = History::default();
        let mut callers: Vec<_> = (0..=MOST_WAITING)
            .map(|_| {
                let (answer, caller) = oneshot::channel();
                history.answer(0, LongPoll::Yes, answer);
                caller
            })
            .collect();
        assert!(numbers(&callers[0].try_recv().unwrap().unwrap()).is_empty());
        assert!(callers[1].try_recv().is_err());
        assert_eq!(history.waiting.len(), MOST_WAITING);
    }

    /// A waiting caller is answered once, with what came after the event it knows; one that has gone is dropped.
    #[test]
    fn a_waiting_caller_is_answered_once() {
        let mut history = History::default();
        record(&mut history, "one");
        let (answer, mut early) = oneshot::channel();
        history.answer(0, LongPoll::Yes, answer);
        assert_eq!(numbers(&early.try_recv().unwrap().unwrap()), [1]);
        let (answer, mut waits) = oneshot::channel();
        history.answer(1, LongPoll::Yes, answer);
        let (answer, gone) = oneshot::channel();
        history.answer(1, LongPoll::Yes, answer);
        drop(gone);
        history.answer_waiting();
        assert!(waits.try_recv().is_err());
        let (answer, mut at_once) = oneshot::channel();
        history.answer(1, LongPoll::No, answer);
        assert!(numbers(&at_once.try_recv().unwrap().unwrap()).is_empty());
        assert_eq!(history.waiting.len(), 1, "a caller that has gone is dropped");
        record(&mut history, "two");
        history.answer_waiting();
        assert_eq!(numbers(&waits.try_recv().unwrap().unwrap()), [2]);
        assert!(history.waiting.is_empty());
    }
}
