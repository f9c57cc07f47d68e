//! Checks whether a node is ready for podshim: at least one answer for each subject, problems with what to do.
//!
//! Owns the list of checks. It reads everything below one root, so that it can check a test's directory, or a file
//! system made for another machine, like the running node; it runs programs only on the running node. Changes nothing.

mod agent;
mod programs;
mod report;
mod runtime;
mod system;

use report::Report;
pub use report::{Check, NodeUnderTest, Status};

/// Checks everything.
pub fn examine(node: &NodeUnderTest) -> Vec<Check> {
    let mut report = Report::of(node);
    let release = programs::containerd(&mut report);
    let oci_runtime = runtime::configuration(&mut report, release);
    programs::oci_runtime(&mut report, oci_runtime);
    system::kernel(&mut report);
    system::cgroups(&mut report);
    system::space(&mut report);
    system::node_file(&mut report);
    system::drain(&mut report);
    runtime::runtime_class(&mut report);
    agent::agent(&mut report);
    report.checks
}
