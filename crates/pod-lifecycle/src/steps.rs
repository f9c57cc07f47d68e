//! One thing done to one container, with all that goes with it: a signal, a start, a final exit.
//!
//! Never chooses the container or the moment.

pub(crate) mod back_off;
pub(crate) mod finish;
pub(crate) mod forget;
pub(crate) mod hooks;
pub(crate) mod oom_score;
pub(crate) mod renew;
pub(crate) mod signal;
pub(crate) mod start;
pub(crate) mod unrun;
