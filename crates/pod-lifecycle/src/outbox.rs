//! The actions that the pod has decided on and its driver has not taken yet.
//!
//! Owns their order, the ids of operations, and the count of changes by which `Pod::handle` knows that its rules have
//! settled. Knows no container.

use std::collections::VecDeque;

use crate::interface::action::Action;
use crate::interface::id::{ContainerId, OpId};
use crate::interface::operation::Operation;

/// The queue of actions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Outbox {
    actions: VecDeque<Action>,
    next_op: u64,
    changes: u64,
}

impl Outbox {
    /// Queues an action that comes with a change of the tables.
    pub(crate) fn emit_change(&mut self, action: Action) {
        self.mark_changed();
        self.actions.push_back(action);
    }

    /// Queues an action that comes with no change.
    pub(crate) fn emit(&mut self, action: Action) {
        self.actions.push_back(action);
    }

    /// Notes a change of the tables that needs no action: the rules are applied again.
    pub(crate) fn mark_changed(&mut self) {
        self.changes += 1;
    }

    /// The number of changes so far.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Starts an operation on a container.
    pub(crate) fn run(&mut self, container: ContainerId, operation: Operation) -> OpId {
        let op = self.next_op();
        self.emit_change(Action::Run { op, container, operation });
        op
    }

    /// The id of the next operation.
    pub(crate) fn next_op(&mut self) -> OpId {
        self.next_op += 1;
        OpId(self.next_op)
    }

    /// The oldest action that the driver has not taken.
    pub(crate) fn take(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }
}
