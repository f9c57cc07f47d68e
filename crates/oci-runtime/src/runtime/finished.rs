//! The calls of the runtime that have ended, for the pod's counts.
//!
//! Owns the list until it is taken. One for the thread, like the measure of `busy`: all of a pod's calls are made on it.

use std::cell::RefCell;
use std::time::Duration;

use super::error::Operation;

/// A call of the runtime that has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FinishedCall {
    /// The command.
    pub operation: Operation,
    /// From its spawn to its end, or to the end of its time limit.
    pub took: Duration,
    /// How it ended.
    pub end: CallEnd,
}

/// How a call of the runtime ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CallEnd {
    /// With exit code 0.
    Succeeded,
    /// With another one, by a signal, by its time limit, or without having begun.
    Failed,
}

thread_local! {
    static FINISHED: RefCell<Vec<FinishedCall>> = const { RefCell::new(Vec::new()) };
}

pub(super) fn note(call: FinishedCall) {
    FINISHED.with_borrow_mut(|finished| finished.push(call));
}

/// Takes the calls that have ended since the last time.
pub fn take_finished_calls() -> Vec<FinishedCall> {
    FINISHED.take()
}
