//! Probes a container: the `exec:`, `tcp:`, `http:`, `grpc:` and `file:` gates of rule U2.
//!
//! One call is one attempt. `pod-lifecycle` owns period, delay and thresholds.

mod connect;
mod exec;
mod file;
mod grpc;
mod http;
mod result;
mod tcp;
#[cfg(test)]
mod tests;

pub use connect::Endpoint;
pub use exec::exec;
pub use file::{FileChecks, file};
pub use grpc::grpc;
pub use http::http;
#[cfg(any(test, fuzzing))]
pub(crate) use http::status_of;
pub use result::ProbeResult;
pub use tcp::tcp;
