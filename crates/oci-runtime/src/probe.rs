//! Probes a container: the `exec:`, `tcp:`, `http:`, `grpc:` and `file:` gates of rule U2.
//!
//! One call is one attempt. `pod-lifecycle` owns period, delay and thresholds. All but `exec:` are asked by a process of
//! podshim's in the container's own cgroup (`prober`), so that what an answer costs is charged to the container: the shim opens no
//! socket and no file of a container.

mod connect;
mod deadline;
mod exec;
mod file;
mod grpc;
mod http;
mod prober;
mod question;
mod result;
#[cfg(test)]
mod tests;

pub use connect::Endpoint;
pub use exec::exec;
#[cfg(any(test, fuzzing))]
pub(crate) use http::status_of;
pub use prober::{Asked, Prober};
pub use question::Question;
pub use result::ProbeResult;
