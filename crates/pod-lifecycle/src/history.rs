//! What is worth remembering of a pod's life, for whoever asks later what happened. Owns the words; decides nothing,
//! and nothing of a pod depends on it. Times are the driver's.

use std::time::Duration;

use pod_spec::Signal;

use crate::action::{Action, Hook};
use crate::container::{Container, Intent};
use crate::event::{ContainerId, Exit};
use crate::inspection::InspectedStop;
use crate::pod::Pod;

/// Something that [`Action::Record`] keeps. What other actions say of themselves (operations, signals, events, final
/// exits) is not said again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Milestone {
    /// Its start was asked for, and it waits (U7, V1).
    Held {
        /// For what.
        reason: String,
    },
    /// Its program has been started.
    Running {
        /// Its process.
        pid: u32,
    },
    /// Its program could not be started.
    StartFailed {
        /// The runtime's words.
        reason: String,
    },
    /// Whoever waited for it may go on (U1, U2).
    GateOpened,
    /// U4.
    GateFailed {
        /// What its probe said last.
        reason: String,
    },
    /// Its program has ended; whether that is shown is told by what follows.
    Exited {
        /// How it really was.
        exit: Exit,
    },
    /// It will be started again (R4, R7).
    RestartDue {
        /// So long from now.
        delay: Duration,
    },
    /// The kernel killed a process of it for memory, shown or not (R10).
    OutOfMemory,
    /// T3: a caller's stop signal waits for the sidecar's turn.
    SignalHeld {
        /// Which.
        signal: Signal,
    },
    /// Its hook has ended.
    HookEnded {
        /// Which.
        hook: Hook,
        /// What went wrong, if something did.
        failure: Option<String>,
    },
    /// V3.
    SwitchBegan,
    /// V4: it is the active one of its pair.
    Switched,
    /// V5.
    SwitchFailed {
        /// Why.
        reason: String,
    },
    /// A stop of the pod has begun, has another cause, or has less time (T9, T12).
    StopBegan(InspectedStop),
    /// T6: whoever is left has its stop signal now.
    LastCall,
    /// T6: whoever is left is killed.
    BudgetSpent,
    /// T14: the round is over.
    StopEnded,
}

/// Why a signal is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SignalCause {
    /// A caller sent it.
    Caller,
    /// Its turn in the stop of its pod has come (T1, T2, K13).
    Turn,
    /// The pod's time is over (T6).
    Budget,
    /// Its own time is over (T7, T8, U4).
    Grace,
    /// It is to be started again, or to be held (U4, I7, V4).
    Restart,
    /// Its program is not to run (K3, J9, T11), or what is left of it not to go on (R6).
    NotRun,
}

impl Pod {
    /// Remembers something of a container. No change of the tables: rules do not see it.
    pub(crate) fn record(&mut self, id: &ContainerId, milestone: Milestone) {
        self.queue(Action::Record { container: Some(id.clone()), milestone });
    }

    /// Remembers something of the pod.
    pub(crate) fn record_of_pod(&mut self, milestone: Milestone) {
        self.queue(Action::Record { container: None, milestone });
    }

    /// Why a container's stop signal goes out now; `given` is one that a caller sends just now.
    pub(crate) fn cause_of_stop<T>(&self, container: &Container, given: Option<T>) -> SignalCause {
        if given.is_some() {
            SignalCause::Caller
        } else if self.budget_is_over() {
            SignalCause::Budget
        } else if container.stop.intent == Intent::Restart {
            SignalCause::Restart
        } else if self.stop.is_none() && container.stop.held_signal.is_some() {
            SignalCause::Caller
        } else {
            SignalCause::Turn
        }
    }

    /// The name of a container, as its plan has it.
    pub fn name_of(&self, id: &ContainerId) -> Option<&str> {
        self.containers.get(id).map(|container| container.spec.name.as_str())
    }
}
