//! How far a restart of all containers is, and what it owes.
//!
//! Owns these facts; what the kubelet does is `restart_all`.

use std::collections::BTreeMap;

/// The restarts of all containers.
#[derive(Clone, Debug, Default)]
pub(super) struct RestartOfAll {
    pub(super) stage: Stage,
    /// The containers that have completed before, and which attempt of each must run.
    pub(super) owed: BTreeMap<usize, u32>,
    /// The attempts of each when all were removed the last time.
    pub(super) before: Vec<u32>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    #[default]
    No,
    /// A rule has matched. The pod's condition keeps that over a restart of the kubelet.
    Ordered,
    /// The containers are being killed.
    Killing,
}

impl RestartOfAll {
    pub(super) fn is_ordered(&self) -> bool {
        self.stage != Stage::No
    }
}
