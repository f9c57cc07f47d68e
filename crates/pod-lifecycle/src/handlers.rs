//! What one event does: a caller's request, an exit, the end of an operation.
//!
//! A handler changes the tables and answers its caller. Never looks ahead: what follows for other containers is `rules`.

pub(crate) mod checkpoint;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod exec;
pub(crate) mod exit;
pub(crate) mod freezer;
pub(crate) mod gate_check;
pub(crate) mod hook;
pub(crate) mod kill;
pub(crate) mod kubelets_own;
pub(crate) mod recreate;
pub(crate) mod restart_pod;
pub(crate) mod start;
pub(crate) mod stop_pod;
pub(crate) mod switch;
pub(crate) mod wait;
