//! The owner of a pod, and the ttrpc services in front of it.
//!
//! Owns the loop (`drive`): one task that holds the state (`state`): the pod's state machine and everything that its containers
//! need. Decides nothing about pods; that is `pod-lifecycle`'s. ttrpc handlers (`task`, `control`) translate, send a command
//! and await its answer. containerd drops a handler when its caller's deadline passes or the connection breaks, so no effect
//! may live in one.
//!
//! Files stand on floors, and none may import one above it: the parts of the state, the state, what an action or a report does
//! to it (`actions`, `operations`, `completions`, `creation`, `reads`, `inspect`), the loop, the server.

#![forbid(unsafe_code)]

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
pub mod cri;
mod details;
mod drive;
pub mod error;
mod exec;
mod gate;
mod group_counts;
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
mod oom_score;
mod operations;
pub mod options;
mod peers;
mod pod_sandbox;
pub mod publisher;
mod readiness;
mod reads;
mod report;
mod requests;
mod resources;
mod sandbox_requests;
mod sandbox_service;
mod server;
mod shared_namespaces;
mod spec_draft;
mod state;
mod streams;
mod task;
mod throttle;
mod trace;

pub use context::{console_directory, sandbox_directory};
pub use server::{ServeConfig, ServeError, serve};
