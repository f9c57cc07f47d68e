//! The test bench of the pod core: a simulator on virtual time, an exhaustive explorer, and the invariants
//! both check after every step.
//!
//! Owns the fake world (processes, operations, callers) and nothing of the core's decisions: the invariants
//! are stated from what goes in and what comes out, never from the core's own tables. Dev-only; no clock, no
//! IO, no randomness.

#![forbid(unsafe_code)]

mod canonical;
mod command;
mod explorer;
mod invariants;
mod program;
mod simulator;
mod text;
mod trace;
mod world;

pub use command::{Command, CommandError, Detail, NewContainer, PodCaller, Scenario};
pub use explorer::{Exploration, Explorer, Limits, Report};
pub use invariants::Violation;
pub use program::{OnStop, Program, Run, RunEnd};
pub use simulator::{RunError, Simulator};
pub use world::OperationKind;
