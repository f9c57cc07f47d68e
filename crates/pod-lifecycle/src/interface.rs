//! What goes into the pod and what comes out, as data. Decides nothing.

pub(crate) mod action;
pub(crate) mod event;
pub(crate) mod exit;
pub(crate) mod id;
pub(crate) mod inspection;
pub(crate) mod milestone;
pub(crate) mod operation;
pub(crate) mod outcome;
pub(crate) mod spec;
pub(crate) mod stop_cause;
pub(crate) mod stop_order;
pub(crate) mod time;
pub(crate) mod view;
