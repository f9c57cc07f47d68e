//! What one sync of a kubelet wants, as a pure function of what it sees (`computePodActions` of its runtime manager).
//!
//! Owns the decision about regular containers. `unaware` and `aware` decide about init containers.

use std::collections::BTreeSet;

use pod_lifecycle::ContainerId;
use pod_spec::RestartPolicy;

use super::ledger::Ledger;
use super::setup::{KubeletSetup, SpecPart};
use super::status::{List, Listed, State};

/// What a kubelet sees at the start of a sync.
pub(super) struct SyncInput<'a> {
    pub(super) setup: &'a KubeletSetup,
    pub(super) images: &'a [u32],
    pub(super) listed: &'a List,
    pub(super) failed_probes: &'a BTreeSet<ContainerId>,
    /// What startup probes show: whether a program runs.
    pub(super) ledger: &'a Ledger,
}

/// What it does in the sync.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Actions {
    /// Nothing is left to run: all running containers are killed, the sandbox is stopped.
    pub(super) kill_pod: bool,
    pub(super) kill: Vec<ContainerId>,
    /// The containers to start, in the order of the pod's spec.
    pub(super) start: Vec<usize>,
}

/// Looks at the regular containers.
pub(super) fn regulars(input: &SyncInput<'_>, actions: &mut Actions) {
    let mut kept = 0;
    for (container, spec) in input.setup.containers.iter().enumerate() {
        if spec.part != SpecPart::Regular {
            continue;
        }
        match input.listed.newest(container) {
            Some(running) if running.state == State::Running => {
                let Some(reason) = input.reason_to_kill(running) else {
                    kept += 1;
                    continue;
                };
                if reason == Reason::Changed || input.setup.policy_of(container) != RestartPolicy::Never {
                    actions.start.push(container);
                }
                actions.kill.push(running.id.clone());
            }
            other => {
                if other.is_none_or(|dead| is_started_again(dead, input.setup.policy_of(container))) {
                    actions.start.push(container);
                }
            }
        }
    }
    actions.kill_pod = kept == 0 && actions.start.is_empty();
}

/// Looks at the containers of `kubectl debug`, which keep no pod alive.
pub(super) fn ephemerals(input: &SyncInput<'_>, actions: &mut Actions) {
    let parts = input.setup.containers.iter().enumerate();
    for (container, _) in parts.filter(|(_, spec)| spec.part == SpecPart::Ephemeral) {
        if !actions.kill_pod && input.listed.newest(container).is_none() {
            actions.start.push(container);
        }
    }
}

/// Why a running container is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// It does not match the pod's spec any more. It is started again under any policy.
    Changed,
    /// Its liveness or startup probe has failed.
    Probe,
}

impl SyncInput<'_> {
    pub(super) fn reason_to_kill(&self, running: &Listed) -> Option<Reason> {
        if running.image != self.images[running.container] {
            return Some(Reason::Changed);
        }
        self.failed_probes.contains(&running.id).then_some(Reason::Probe)
    }
}

/// `ShouldContainerBeRestarted`, for a container that does not run.
pub(super) fn is_started_again(listed: &Listed, policy: RestartPolicy) -> bool {
    match (listed.state, policy) {
        (State::Created, _) => true,
        (State::Running, _) | (State::Exited { .. }, RestartPolicy::Never) => false,
        (State::Exited { .. }, RestartPolicy::Always) => true,
        (State::Exited { code, .. }, RestartPolicy::OnFailure) => code != 0,
    }
}

#[cfg(test)]
mod tests {
    use pod_lifecycle::PodTime;

    use super::super::setup::{KubeletVersion, PodContainer};
    use super::*;

    const RUNNING: State = State::Running;

    fn exited(code: u32) -> State {
        State::Exited { code, at: PodTime::ZERO }
    }

    /// What a kubelet wants of a pod with the given newest containers. If they run, `c0` has failed its probe and the
    /// image of `c1` has changed.
    fn wants(policy: RestartPolicy, states: &[Option<State>]) -> (Vec<String>, Vec<usize>, bool) {
        let names: Vec<_> = (0..states.len()).map(|index| format!("c{index}")).collect();
        let setup = KubeletSetup {
            version: KubeletVersion::Unaware,
            policy,
            seed: 0,
            grace: std::time::Duration::from_secs(5),
            containers: names.iter().map(|name| PodContainer::named(name)).collect(),
        };
        let mut listed = List::default();
        for (container, state) in states.iter().enumerate() {
            let Some(state) = *state else { continue };
            let id = names[container].as_str().into();
            let since = PodTime::ZERO;
            listed.add(Listed { id, container, image: 0, state, since, was_signalled: false });
        }
        let input = SyncInput {
            setup: &setup,
            images: &(0..states.len()).map(|index| u32::from(index == 1)).collect::<Vec<_>>(),
            listed: &listed,
            failed_probes: &["c0".into()].into(),
            ledger: &Ledger::default(),
        };
        let mut actions = Actions::default();
        regulars(&input, &mut actions);
        let Actions { kill_pod, kill, start } = actions;
        (kill.iter().map(ToString::to_string).collect(), start, kill_pod)
    }

    #[test]
    fn the_dead_are_started_again_by_policy() {
        let states = [None, Some(exited(0)), Some(exited(1)), Some(RUNNING), Some(State::Created)];
        assert_eq!(wants(RestartPolicy::Always, &states), (vec![], vec![0, 1, 2, 4], false));
        assert_eq!(wants(RestartPolicy::OnFailure, &states), (vec![], vec![0, 2, 4], false));
        // A container that was never created, or whose dead container was removed, is started under Never too.
        assert_eq!(wants(RestartPolicy::Never, &states), (vec![], vec![0, 4], false));
    }

    #[test]
    fn a_changed_image_is_started_again_under_never_and_a_failed_probe_is_not() {
        let states = [Some(RUNNING), Some(RUNNING), Some(RUNNING)];
        let both = || vec!["c0".to_owned(), "c1".to_owned()];
        assert_eq!(wants(RestartPolicy::OnFailure, &states), (both(), vec![0, 1], false));
        assert_eq!(wants(RestartPolicy::Never, &states), (both(), vec![1], false));
    }

    #[test]
    fn a_pod_of_which_nothing_is_kept_or_started_is_killed() {
        assert!(
            wants(RestartPolicy::Never, &[Some(RUNNING), Some(exited(1))]).2,
            "its last one fails its probe"
        );
        assert!(wants(RestartPolicy::OnFailure, &[Some(exited(0)), Some(exited(0))]).2);
        assert!(
            !wants(RestartPolicy::OnFailure, &[Some(exited(0)), Some(exited(1))]).2,
            "one is in back-off"
        );
        assert!(!wants(RestartPolicy::Always, &[Some(exited(0)), Some(exited(0))]).2);
    }
}
