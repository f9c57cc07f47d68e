//! The operations that the end of their container waits for (T10).
//!
//! Owns until when podshim waits for them, and that each is given up once. Knows neither the operations nor the container.

use crate::interface::id::OpId;
use crate::interface::time::PodTime;

/// What is known of such operations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Overdue(Vec<Awaited>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Awaited {
    op: OpId,
    limit: Limit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Limit {
    Until(PodTime),
    /// It was given up: its driver answers at once.
    Over,
}

impl Overdue {
    /// When the next operation is given up.
    pub(crate) fn deadline(&self) -> Option<PodTime> {
        self.0.iter().filter_map(|awaited| awaited.limit.deadline()).min()
    }

    /// Its container's end waits for those operations and no others, for each until that time at the latest, or the one that was
    /// set before. Returns whether that is new.
    pub(crate) fn wait(&mut self, ops: &[OpId], until: PodTime) -> bool {
        if ops.is_empty() && self.0.is_empty() {
            return false;
        }
        let limit_of = |op: OpId| match self.0.iter().find(|awaited| awaited.op == op).map(|it| it.limit) {
            Some(Limit::Over) => Limit::Over,
            Some(Limit::Until(at)) => Limit::Until(at.min(until)),
            None => Limit::Until(until),
        };
        let awaited: Vec<_> = ops.iter().map(|op| Awaited { op: *op, limit: limit_of(*op) }).collect();
        let is_new = self.0 != awaited;
        self.0 = awaited;
        is_new
    }

    /// The operations that are to be given up now, and were not.
    pub(crate) fn give_up(&mut self, now: PodTime) -> Vec<OpId> {
        let due = |awaited: &&mut Awaited| awaited.limit.deadline().is_some_and(|at| now >= at);
        let given_up = self.0.iter_mut().filter(due).map(|awaited| {
            awaited.limit = Limit::Over;
            awaited.op
        });
        given_up.collect()
    }
}

impl Limit {
    fn deadline(self) -> Option<PodTime> {
        match self {
            Self::Until(at) => Some(at),
            Self::Over => None,
        }
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
        let op = [OpId(7)];
        assert!(overdue.wait(&op, at(5)) && !overdue.wait(&op, at(6)) && overdue.wait(&op, at(4)));
        assert_eq!((overdue.give_up(at(3)), overdue.give_up(at(4))), (vec![], vec![OpId(7)]));
        assert!(!overdue.wait(&op, at(4)));
        assert_eq!((overdue.give_up(at(9)), overdue.deadline()), (vec![], None));
        assert!(overdue.wait(&[OpId(8)], at(10)));
        overdue.wait(&[], at(10));
        assert_eq!(overdue.give_up(at(11)), vec![]);
    }

    /// T10: those that hang beside each other are given up together: none waits for the one before it.
    #[test]
    fn t10_two_operations_have_the_same_time() {
        let at = |seconds| PodTime::after_epoch(Duration::from_secs(seconds));
        let mut overdue = Overdue::default();
        overdue.wait(&[OpId(1), OpId(2)], at(1));
        assert_eq!(overdue.deadline(), Some(at(1)));
        assert_eq!(overdue.give_up(at(1)), vec![OpId(1), OpId(2)]);
    }
}
