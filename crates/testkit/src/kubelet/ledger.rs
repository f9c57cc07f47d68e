//! What programs have really done, and which of them the kubelet killed.
//!
//! Owns these facts; what a pod owes its kubelet because of them is `expectation`.

use std::collections::{BTreeMap, BTreeSet};

use pod_lifecycle::ContainerId;

/// What programs have really done, whatever callers saw.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    /// Containers whose program runs.
    pub(super) running: BTreeSet<ContainerId>,
    /// Containers whose program has run at least once.
    pub(super) ran: BTreeSet<ContainerId>,
    /// Containers whose program has exited with 0.
    pub(super) ended_well: BTreeSet<ContainerId>,
    /// What had ended, and ran no more, when the program of a container began the last time.
    over_before: BTreeMap<ContainerId, BTreeSet<ContainerId>>,
    /// Containers that the kubelet has killed.
    pub(super) killed: BTreeSet<ContainerId>,
    /// Killed containers whose stop was given up by a kubelet that restarted.
    pub(super) given_up: BTreeSet<ContainerId>,
    /// Whether crictl has sent SIGKILL alone, which with `zero-grace=order` is a stop of the pod (K11).
    pub(super) crictl_killed: bool,
}

impl Ledger {
    /// Whether the program of a container runs.
    pub(super) fn runs(&self, id: &ContainerId) -> bool {
        self.running.contains(id)
    }

    pub(super) fn began(&mut self, id: &ContainerId) {
        let over = self.ran.difference(&self.running).cloned().collect();
        self.over_before.insert(id.clone(), over);
        self.running.insert(id.clone());
        self.ran.insert(id.clone());
    }

    /// Whether a container had run, and did no more, when the program of another one began the last time.
    pub(super) fn was_over_before(&self, id: &ContainerId, other: &ContainerId) -> bool {
        self.over_before.get(other).is_some_and(|over| over.contains(id))
    }

    /// The kubelet restarts. To all callers a program that goes on after its stop signal then does its work.
    pub(super) fn forget_stops(&mut self) {
        self.given_up.extend(self.killed.intersection(&self.running).cloned());
    }

    pub(crate) fn ended(&mut self, id: &ContainerId, code: u32) {
        self.running.remove(id);
        if code == 0 {
            self.ended_well.insert(id.clone());
        }
    }
}
