//! Pods of a cluster of Kubernetes 1.20 (`hack/cluster`), made by its own controllers and ended by its own hands: a
//! roll-out, a drain, a node that is cut from power. Run by `hack/cluster test`, which has a cluster of two nodes.

mod agent;
mod command;
#[path = "../../../crates/podshim/tests/containerd/mod.rs"]
mod containerd;
mod daemon_sets;
mod default_runtime;
mod deployments;
mod drains;
mod exporter;
mod installer;
mod jobs;
mod kubectl;
mod network;
mod power;
mod readme;
#[path = "../../../crates/podshim/tests/readme_commands/mod.rs"]
mod readme_commands;
mod runtime_classes;
mod support;
