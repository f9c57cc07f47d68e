//! What podshim knows of a sidecar's stop signal that came before its turn (T16).
//!
//! Owns the decision on one signal: open until its window is over, then alone or not. Knows neither the container nor the
//! pod.

use crate::interface::time::PodTime;

/// The decision on a sidecar's stop signal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LoneStop(Decision);

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Decision {
    /// There is no such signal, or it belongs to a stop of the pod.
    #[default]
    None,
    /// Other stops may follow until `decide_at`.
    Open { decide_at: PodTime, window: Window },
    /// It is no stop of the pod: the sidecar has got its signal.
    Alone,
}

/// How long podshim waits for other stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Window {
    Usual,
    /// After a timer that fired late: other stops may be late too.
    Doubled,
}

impl LoneStop {
    /// Whether the sidecar was stopped alone.
    pub(crate) fn is_alone(self) -> bool {
        self.0 == Decision::Alone
    }

    /// When the window ends, and which one it is; `None` if nothing is open.
    pub(crate) fn open(self) -> Option<(PodTime, Window)> {
        match self.0 {
            Decision::Open { decide_at, window } => Some((decide_at, window)),
            Decision::None | Decision::Alone => None,
        }
    }

    /// A signal has come.
    pub(crate) fn wait(&mut self, decide_at: PodTime) {
        self.0 = Decision::Open { decide_at, window: Window::Usual };
    }

    /// The timer fired late: the window is open a second time.
    pub(crate) fn wait_again(&mut self, decide_at: PodTime) {
        self.0 = Decision::Open { decide_at, window: Window::Doubled };
    }

    /// The sidecar is stopped alone.
    pub(crate) fn judge_alone(&mut self) {
        self.0 = Decision::Alone;
    }

    /// The signal waits for the sidecar's turn, or there is a new process. Returns whether it had been judged alone.
    pub(crate) fn forget(&mut self) -> bool {
        std::mem::take(self).is_alone()
    }
}
