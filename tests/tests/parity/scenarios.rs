//! The operations that are run on both shims: one function per scenario, one module per subject.

pub mod checkpoints;
pub mod execs;
pub mod failures;
pub mod freezing;
pub mod life;
pub mod resources;
pub mod settings;
pub mod signals;
pub mod streams;
