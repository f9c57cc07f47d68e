//! How far the end of one container has come: signals that wait, were sent, or are due, and what the next exit means.

use pod_spec::Signal;

use crate::interface::operation::Reach;
use crate::interface::time::PodTime;

/// How far the end of a container has come.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ending {
    /// A stop signal that waits for the sidecar's turn (K7), or for the container's hooks (H1, H2).
    pub(crate) held_signal: Option<(Signal, Reach)>,
    /// When a stop signal was delivered.
    pub(crate) term_at: Option<PodTime>,
    /// When SIGKILL is due (T7, T8).
    pub(crate) kill_at: Option<PodTime>,
    /// SIGKILL has been sent to this incarnation.
    pub(crate) killed: bool,
    /// What the next exit means.
    pub(crate) next_exit: NextExit,
    /// K11: a caller's kill that was obeyed; its code is shown as it is (J4).
    pub(crate) obeyed: bool,
}

/// What the next exit of a container means.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum NextExit {
    /// No caller has asked for it, and podshim has not caused it.
    #[default]
    Unasked,
    /// podshim ended it in order to restart it (U4, I7).
    Restart,
    /// It is final.
    Final,
}

impl Ending {
    /// A new process has had no signal yet. What callers asked for is still to be done (T3).
    pub(crate) fn new_incarnation(&mut self) {
        self.term_at = None;
        self.kill_at = None;
        self.killed = false;
        if self.next_exit == NextExit::Restart {
            self.next_exit = NextExit::Unasked;
        }
    }

    /// A signal that podshim meant to send has not reached the process and will not: the process has exited by itself.
    pub(crate) fn not_signalled(&mut self) {
        self.term_at = None;
        if self.next_exit == NextExit::Restart {
            self.next_exit = NextExit::Unasked;
        }
    }

    /// The stop that it was part of turned out to be no stop of the pod.
    pub(crate) fn taken_back(&mut self) {
        self.term_at = None;
        self.kill_at = None;
        self.next_exit = NextExit::Unasked;
    }

    /// Makes SIGKILL due at that time, or earlier if it was due earlier.
    pub(crate) fn kill_by(&mut self, at: PodTime) {
        self.kill_at = Some(self.kill_at.map_or(at, |due| due.min(at)));
    }
}
