//! The order of a stop as data, for systemd, which may stop containers in the shim's place (N5).
//!
//! Decides nothing: `questions::stop_order` fills it in.

use std::time::Duration;

use crate::interface::id::ContainerId;

/// Where one container stands in a stop, among those that exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StopOrder {
    /// The sandbox, which is to be stopped only when this container is gone; `None` for the sandbox itself, or without
    /// a sandbox.
    pub outlived_by: Option<ContainerId>,
    /// From its stop signal to SIGKILL: its grace, and the floor.
    pub grace: Duration,
}
