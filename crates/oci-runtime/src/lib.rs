//! The OCI runtime's command line, bundles, and what podshim does to a container by itself: probes, hooks, the notify socket, the
//! termination message.
//!
//! This crate does what its caller asks and reports what happened. It never decides what a pod should do next
//! (`pod-lifecycle`), never speaks to containerd (`shim-service`), and is made for one thread: a tokio current-thread
//! runtime with a `LocalSet`. Its handles are based on `Rc` and not `Send`.

#[cfg(any(test, fuzzing))]
pub mod bad_input;
pub mod bundle;
pub mod hook;
pub mod notify;
pub mod probe;
pub mod runtime;
pub mod spec;
pub mod termination_message;
#[cfg(any(test, feature = "test-container"))]
pub mod test_container;

mod settings;

pub use nix::unistd::Pid;
