//! What podshim knows of a sidecar's stop signal that came before its turn (T16).

use crate::interface::time::PodTime;

/// What podshim knows of a sidecar's stop signal that came before its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LoneStop {
    /// Other stops may follow until `decide_at`.
    Undecided { decide_at: PodTime, window: Window },
    /// It is no stop of the pod: the sidecar has got its signal.
    Alone,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Window {
    Usual,
    Doubled,
}
