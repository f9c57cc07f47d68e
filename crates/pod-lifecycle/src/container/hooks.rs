//! The hooks of one container: which have run, which one runs, and the stop signal that comes after them.

use std::time::Duration;

use crate::interface::id::OpId;
use crate::interface::operation::Hook;
use crate::interface::time::PodTime;

/// H6: after this many exits before its turn the hook is suspect.
pub(crate) const SUSPECT_EXITS: u32 = 3;

/// What is known of a container's hooks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hooks {
    pub(crate) running: Option<(OpId, Hook)>,
    /// A hook that outlived its container; no exit waits for it.
    pub(crate) lost: Option<OpId>,
    /// H1: once in a stop of the pod, across all incarnations.
    pub(crate) on_terminate: Progress,
    /// H2: once for each incarnation.
    pub(crate) pre_stop: Progress,
    /// The stop signal that comes after the hooks.
    pub(crate) waiting: Option<Waiting>,
    /// H6: exits before its turn since its on-terminate hook began.
    pub(crate) exits: u32,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Progress {
    #[default]
    Due,
    Begun,
}

/// A stop that has begun and whose signal waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiting {
    /// T8 counts from here.
    pub(crate) since: PodTime,
    /// How long hooks, signal and end may take together, if that is limited.
    pub(crate) grace: Option<Duration>,
}

impl Hooks {
    pub(crate) fn waits_for(&self, op: OpId) -> bool {
        self.running.is_some_and(|(running, _)| running == op) || self.lost == Some(op)
    }

    /// Its container is gone, and what was left of it could not be killed. Nothing else can end this hook, and an exit
    /// that waited for it would never be shown.
    pub(crate) fn give_up(&mut self) {
        if let Some((op, _)) = self.running.take() {
            self.lost = Some(op);
        }
    }

    /// Whether a hook's process may still be there: its container's exit comes after it (CONTRACT §6).
    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// Whether a stop signal waits for the hooks.
    pub(crate) fn hold_a_stop(&self) -> bool {
        self.waiting.is_some()
    }

    /// The signal goes out now, although a hook may still run.
    pub(crate) fn stop_waiting(&mut self) -> Option<Waiting> {
        self.waiting.take()
    }

    pub(crate) fn new_incarnation(&mut self) {
        self.waiting = None;
        self.pre_stop = Progress::Due;
    }

    /// T14: what lives goes on, and the next stop is another one.
    pub(crate) fn new_round(&mut self) {
        self.on_terminate = Progress::Due;
        self.exits = 0;
    }

    /// When the hooks next need the clock.
    pub(crate) fn deadline(&self) -> Option<PodTime> {
        self.waiting.and_then(|waiting| Some(waiting.since + waiting.grace?))
    }
}
