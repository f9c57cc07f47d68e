//! What `handle` applies after every event until nothing changes, and the parts of it that handlers need at once.
//!
//! A rule is level-triggered: it looks at the tables as they are, not at what happened. Never answers a request that it was
//! not given.

pub(crate) mod callers_stop;
pub(crate) mod completion;
pub(crate) mod exit;
pub(crate) mod failure;
pub(crate) mod gate;
pub(crate) mod given_up;
pub(crate) mod hooks;
pub(crate) mod kubelets_own;
pub(crate) mod lone_stop;
pub(crate) mod pod_restart;
pub(crate) mod replacement;
pub(crate) mod restart;
pub(crate) mod round;
pub(crate) mod sandbox;
pub(crate) mod standby;
pub(crate) mod startup;
pub(crate) mod stop;
pub(crate) mod timers;
pub(crate) mod turns;
pub(crate) mod zero_grace;
