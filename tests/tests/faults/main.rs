//! What podshim promises when things around it fail: the OCI runtime, the node's resources. Each fault is made on
//! purpose, on real containers; docs/rules.md has the promises, README a summary.

mod deletes;
mod disk;
mod oci_runtime;
mod planned;
mod resources;
mod support;
