//! What podshim keeps of a pod's life, so that an operator can see later what happened. Owns the entries. Decides nothing:
//! no rule reads them. The driver adds the times.

use std::time::Duration;

use pod_spec::Signal;

use crate::interface::exit::Exit;
use crate::interface::inspection::InspectedStop;
use crate::interface::operation::Hook;

/// An entry of the history that `Action::Record` keeps. Other actions (operations, signals, events, final exits) are
/// recorded as themselves and have no entry here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Milestone {
    /// A caller started it, and it waits (U7, V1).
    Held {
        /// What it waits for.
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
    /// Its gate is open: what waited for it may go on (U1, U2).
    GateOpened,
    /// U4: its gate did not open in time.
    GateFailed {
        /// What its probe reported last.
        reason: String,
    },
    /// U6: it was held for as long as `gate-timeout` allows, and never starts.
    GateTimedOut,
    /// Its program has ended; later entries say whether callers see that exit.
    Exited {
        /// How it really exited.
        exit: Exit,
    },
    /// podshim will start it again (R4, R7).
    RestartDue {
        /// How long from now.
        delay: Duration,
    },
    /// The kernel killed one of its processes for memory, whether callers see that or not (R10).
    OutOfMemory,
    /// T3: a caller's stop signal waits for the sidecar's turn.
    SignalHeld {
        /// The signal.
        signal: Signal,
    },
    /// Its hook has ended.
    HookEnded {
        /// Which hook.
        hook: Hook,
        /// What went wrong, if anything did.
        failure: Option<String>,
    },
    /// V3: a switch to it has begun.
    SwitchBegan,
    /// V4: it is now the active one of its pair.
    Switched,
    /// V5: it did not take over.
    SwitchFailed {
        /// Why.
        reason: String,
    },
    /// A stop of the pod has begun, has another cause, or has less time (T9, T12).
    StopBegan(InspectedStop),
    /// R14: the pod is to stop and to start again.
    PodRestart {
        /// Why.
        reason: String,
        /// How long from now it starts at the earliest (R4).
        delay: Duration,
    },
    /// T6: every container that is left has got its stop signal.
    LastCall,
    /// T6: every container that is left is killed.
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
    /// The pod's time is over (T6), or the container's part of it (T19).
    Budget,
    /// Its own time is over (T7, T8, U4).
    Grace,
    /// It is to be restarted, or to be held (U4, I7, V4).
    Restart,
    /// Its program is not to run (K3, J9, T11), or what is left of the container must not go on (R6).
    NotRun,
}
