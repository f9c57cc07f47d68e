//! What is so, as the tables have it. Changes nothing.
//!
//! Handlers, steps and rules ask here, so that a decision that several of them need is made in one place.

pub(crate) mod completion;
pub(crate) mod deadlines;
pub(crate) mod evidence;
pub(crate) mod exit_codes;
pub(crate) mod grace;
pub(crate) mod holds;
pub(crate) mod hooks;
pub(crate) mod inspect;
pub(crate) mod losses;
pub(crate) mod order;
pub(crate) mod pod_restart;
pub(crate) mod restarts;
pub(crate) mod stop_order;
