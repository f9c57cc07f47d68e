//! TODO

pub(crate) mod callers_stop;
pub(crate) mod completion;
pub(crate) mod exit;
pub(crate) mod failure;
pub(crate) mod gate;
pub(crate) mod hooks;
pub(crate) mod lone_stop;
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
