//! Drives an OCI runtime (runc, crun) through its command line.
//!
//! Owns the arguments and the time limit of each call, and turns a failed call into a message for people. Keeps no
//! container state: the runtime and `pod-lifecycle` do that.

mod beside;
mod call;
mod checkpoint;
mod command;
mod container;
mod create;
mod delete;
mod error;
mod features;
mod finished;
mod give_up;
mod launch;
mod maker;
mod own_sandbox;
mod pause;
mod start;
mod state;
#[cfg(test)]
mod tests;
mod unannounced;
mod undo;
mod verbs;

pub use crate::settings::{CallEnvironment, CreateOptions, RootSwitch};
pub use beside::{Beside, BesideSpec};
pub use checkpoint::{AfterCheckpoint, CheckpointOptions, RestoreOptions};
#[cfg(any(test, fuzzing))]
pub(crate) use command::errors_in;
pub use container::{Container, Runtime};
pub use delete::{DeleteMode, GroupsLeft};
pub use error::{Operation, RuntimeError};
pub use features::features;
pub use finished::{CallEnd, FinishedCall, take_finished_calls};
pub use give_up::GiveUp;
pub use launch::Launched;
pub use maker::Maker;
pub use state::{RuntimeState, RuntimeStatus};
