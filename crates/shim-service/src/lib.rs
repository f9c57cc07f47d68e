//! The owner of a pod, and the services it speaks with.
//!
//! Owns the driver loop: one task that holds the pod's state machine and everything the pod's containers need
//! (bundles, stdio, processes), and that no other part may touch. ttrpc handlers translate, send a command and
//! await the answer: containerd drops a handler when its caller's deadline passes or the connection breaks, so
//! no effect may live in one. Decides nothing about pods; that is `pod-lifecycle`.

mod actions;
#[cfg(any(test, fuzzing))]
pub mod bad_input;
mod checkpoint;
mod clock;
mod command;
mod completions;
mod context;
mod control;
mod creation;
mod cri;
mod details;
mod drive;
pub mod error;
mod exec;
mod gate;
mod identity;
mod incarnation;
mod inspect;
mod launch;
mod lifetime;
mod listen;
mod metrics;
pub mod names;
pub mod node;
mod node_shutdown;
mod notice;
mod operations;
pub mod options;
mod peers;
pub mod publisher;
mod readiness;
mod reads;
mod report;
mod requests;
mod resources;
mod server;
mod shared_namespaces;
mod spec_file;
mod state;
mod streams;
mod task;
mod throttle;

pub use context::console_directory;
pub use server::{ServeConfig, ServeError, serve};
