//! The operation that the end of its container waits for (T10).
//!
//! Owns until when podshim waits for it, and that it is given up once. Knows neither the operation nor the container.

use crate::interface::id::OpId;
use crate::interface::time::PodTime;

/// What is known of such an operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Overdue(Option<(OpId, Limit)>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    Until(PodTime),
    /// It was given up: its driver answers at once.
    Over,
}

impl Overdue {
    /// When the operation is given up.
    pub(crate) fn deadline(self) -> Option<PodTime> {
        match self.0? {
            (_, Limit::Until(at)) => Some(at),
            (_, Limit::Over) => None,
        }
    }

    /// Its container's end waits for that operation, and does so until that time at the latest. Returns whether that is news.
    pub(crate) fn wait(&mut self, op: OpId, until: PodTime) -> bool {
        let before = *self;
        self.0 = match self.0.filter(|(waits_for, _)| *waits_for == op) {
            Some((_, Limit::Over)) => self.0,
            Some((_, Limit::Until(at))) => Some((op, Limit::Until(at.min(until)))),
            None => Some((op, Limit::Until(until))),
        };
        *self != before
    }

    /// Nothing waits for an operation.
    pub(crate) fn forget(&mut self) {
        self.0 = None;
    }

    /// The operation that is to be given up now, if it was not.
    pub(crate) fn give_up(&mut self, now: PodTime) -> Option<OpId> {
        let (op, _) = self.0.filter(|_| self.deadline().is_some_and(|at| now >= at))?;
        self.0 = Some((op, Limit::Over));
        Some(op)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// T10: each operation is given up once, at the earliest of all times.
    #[test]
    fn t10_an_operation_is_given_up_once() {
        let at = |seconds| PodTime::after_epoch(Duration::from_secs(seconds));
        let mut overdue = Overdue::default();
        assert!(
            overdue.wait(OpId(7), at(5)) && !overdue.wait(OpId(7), at(6)) && overdue.wait(OpId(7), at(4))
        );
        assert_eq!((overdue.give_up(at(3)), overdue.give_up(at(4))), (None, Some(OpId(7))));
        assert!(!overdue.wait(OpId(7), at(4)));
        assert_eq!((overdue.give_up(at(9)), overdue.deadline()), (None, None));
        assert!(overdue.wait(OpId(8), at(10)));
        overdue.forget();
        assert_eq!(overdue.give_up(at(11)), None);
    }
}
