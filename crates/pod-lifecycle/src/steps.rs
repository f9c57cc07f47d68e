//! TODO

pub(crate) mod back_off;
pub(crate) mod finish;
pub(crate) mod forget;
pub(crate) mod hooks;
pub(crate) mod oom_score;
pub(crate) mod signal;
pub(crate) mod start;
pub(crate) mod unrun;
