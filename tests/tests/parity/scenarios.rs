//! What is done to both shims: one function a scenario, by subject.

pub mod checkpoints;
pub mod execs;
pub mod failures;
pub mod freezing;
pub mod life;
pub mod resources;
pub mod settings;
pub mod signals;
pub mod streams;
