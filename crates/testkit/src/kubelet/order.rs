//! How the end of a pod was ordered, and how far it is.
//!
//! Owns these facts; what the kubelet does is `ending`.

use std::collections::BTreeSet;
use std::time::Duration;

use pod_lifecycle::{ContainerId, PodTime};

use super::cri::CallId;

/// Why and how a pod ends.
#[derive(Clone, Debug)]
pub(super) struct Ending {
    /// Who ordered the end; `None`: nothing is left to run.
    pub(super) order: Option<EndOrder>,
    /// When all containers must have ended, if the end was ordered.
    pub(super) by: Option<PodTime>,
    pub(super) calls: BTreeSet<CallId>,
    /// Sidecars that wait for their turn.
    pub(super) waiting: Vec<Waiting>,
    pub(super) sandbox: Option<CallId>,
}

/// A native sidecar that is killed when its turn has come, or when the grace is over.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) id: ContainerId,
    /// Not before its preStop hook has ended.
    pub(super) from: PodTime,
    pub(super) until: PodTime,
}

impl Ending {
    pub(super) fn new(order: Option<EndOrder>) -> Self {
        Self { order, by: None, calls: BTreeSet::new(), waiting: Vec::new(), sandbox: None }
    }
}

/// How a user or the node orders the end of a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndOrder {
    /// Deletion with that grace.
    Delete(Duration),
    /// Eviction: SIGKILL for all.
    Evict,
}
