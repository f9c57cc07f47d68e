//! The options of a request: how the OCI runtime is called for a container, and what a checkpoint is to do.

pub(crate) mod checkpoint;
mod config;
mod decode;
mod error;
mod fields;
mod runtime;
#[cfg(test)]
mod tests;

pub use decode::runtime_options;
pub use error::{ConfigError, OptionsError};
pub use oci_runtime::runtime::CgroupDriver;
pub use runtime::RuntimeOptions;
