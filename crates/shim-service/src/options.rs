//! The options in requests: how the OCI runtime is called for a container, and what a checkpoint does.
//!
//! Owns nothing itself: it names the parts that other crates use.

pub(crate) mod checkpoint;
mod config;
mod decode;
mod error;
mod fields;
mod runtime;
#[cfg(test)]
mod tests;

pub use cgroups::CgroupDriver;
pub use decode::runtime_options;
pub use error::{ConfigError, OptionsError};
pub use runtime::RuntimeOptions;
