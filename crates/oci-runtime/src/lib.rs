//! The OCI runtime's command line, stdio, consoles, bundles and rootfs mounts, cgroups, and probes and hooks inside a container's
//! namespaces.
//!
//! This crate does what its caller asks and reports what happened. It never decides what a pod should do next
//! (`pod-lifecycle`), never speaks to containerd (`shim-service`), and is made for one thread: a tokio current-thread
//! runtime with a `LocalSet`. Its handles are based on `Rc` and not `Send`.

#[cfg(any(test, fuzzing))]
pub mod bad_input;
pub mod bundle;
pub mod cgroup;
pub mod console;
pub mod hook;
pub mod mount;
pub mod notify;
pub mod probe;
pub mod runtime;
pub mod sandbox;
pub mod spec;
pub mod stdio;
pub mod streams;
pub mod termination_message;

mod detached_mount;
mod settings;
mod systemd;
#[cfg(test)]
mod test_container;

pub use nix::unistd::Pid;
