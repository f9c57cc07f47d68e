//! What one sync of a kubelet wants, as a pure function of what it sees (`computePodActions` of its runtime manager).
//!
//! Owns what is decided of regular containers: all of a kubelet's that knows no sidecars. Inits are `aware`'s.

use std::collections::BTreeSet;

use pod_lifecycle::ContainerId;
use pod_spec::RestartPolicy;

use super::aware;
use super::expectation::Ledger;
use super::setup::{KubeletSetup, KubeletVersion, SpecPart};
use super::status::{List, Listed, State};

/// What a kubelet sees at the beginning of a sync.
pub(super) struct Sight<'a> {
    pub(super) setup: &'a KubeletSetup,
    pub(super) images: &'a [u32],
    pub(super) listed: &'a List,
    pub(super) failed_probes: &'a BTreeSet<ContainerId>,
    /// What startup probes find: whether a program runs.
    pub(super) ledger: &'a Ledger,
}

/// What it does then.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Actions {
    /// Nothing is left to run: whatever runs is killed, the sandbox stopped.
    pub(super) kill_pod: bool,
    pub(super) kill: Vec<ContainerId>,
    /// In the order of the pod's spec.
    pub(super) start: Vec<usize>,
}

pub(super) fn decide(sight: &Sight<'_>) -> Actions {
    if sight.setup.version == KubeletVersion::Aware {
        return aware::decide(sight);
    }
    let mut actions = Actions::default();
    regulars(sight, &mut actions);
    actions
}

/// Looks at the regular containers.
pub(super) fn regulars(sight: &Sight<'_>, actions: &mut Actions) {
    let mut kept = 0;
    for (container, spec) in sight.setup.containers.iter().enumerate() {
        if spec.part != SpecPart::Regular {
            continue;
        }
        match sight.listed.newest(container) {
            Some(running) if running.state == State::Running => {
                let Some(reason) = sight.reason_to_kill(running) else {
                    kept += 1;
                    continue;
                };
                if reason == Reason::Changed || sight.setup.policy != RestartPolicy::Never {
                    actions.start.push(container);
                }
                actions.kill.push(running.id.clone());
            }
            other => {
                if other.is_none_or(|dead| is_started_again(dead, sight.setup.policy)) {
                    actions.start.push(container);
                }
            }
        }
    }
    actions.kill_pod = kept == 0 && actions.start.is_empty();
}

/// Why a running container is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// It is not what the pod's spec says any more. It is started again whatever the policy.
    Changed,
    /// Its liveness or startup probe has failed.
    Probe,
}

impl Sight<'_> {
    pub(super) fn reason_to_kill(&self, running: &Listed) -> Option<Reason> {
        if running.image != self.images[running.container] {
            return Some(Reason::Changed);
        }
        self.failed_probes.contains(&running.id).then_some(Reason::Probe)
    }
}

/// `ShouldContainerBeRestarted`, of one that does not run.
pub(super) fn is_started_again(listed: &Listed, policy: RestartPolicy) -> bool {
    match (listed.state, policy) {
        (State::Created, _) => true,
        (State::Running, _) | (State::Exited { .. }, RestartPolicy::Never) => false,
        (State::Exited { .. }, RestartPolicy::Always) => true,
        (State::Exited { code, .. }, RestartPolicy::OnFailure) => code != 0,
    }
}
