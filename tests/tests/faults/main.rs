//! What podshim promises when things around it fail: the OCI runtime, the node's resources. The tests cause each fault
//! on purpose, on real containers; docs/rules.md has the promises, README a summary.

mod deletes;
mod disk;
mod execs;
mod history;
mod oci_runtime;
mod planned;
mod resources;
mod sandboxes;
mod support;
