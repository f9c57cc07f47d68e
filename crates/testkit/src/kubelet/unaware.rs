//! What one sync of a kubelet without native sidecars wants (1.20; `findNextInitContainerToRun`).
//!
//! Owns the order of its init containers: each runs to completion before the next one, and all before any regular container.

use pod_spec::RestartPolicy;

use super::setup::SpecPart;
use super::status::State;
use super::sync::{Actions, SyncInput, ephemerals, regulars};

pub(super) fn decide(input: &SyncInput<'_>) -> Actions {
    let mut actions = Actions::default();
    match progress(input) {
        Progress::Done => regulars(input, &mut actions),
        Progress::Failed(_) if input.setup.policy == RestartPolicy::Never => actions.kill_pod = true,
        Progress::Failed(init) | Progress::Next(init) => actions.start.push(init),
        Progress::Running => {}
    }
    ephemerals(input, &mut actions);
    actions
}

/// How far the init containers are.
enum Progress {
    Done,
    Running,
    Next(usize),
    Failed(usize),
}

fn progress(input: &SyncInput<'_>) -> Progress {
    let parts = input.setup.containers.iter().enumerate();
    let inits = parts.filter(|(_, container)| container.part == SpecPart::Init).map(|(index, _)| index);
    let inits: Vec<usize> = inits.collect();
    let state = |init: usize| input.listed.newest(init).map(|newest| newest.state);
    let has_failed = |init: &usize| matches!(state(*init), Some(State::Exited { code, .. }) if code != 0);
    if let Some(failed) = inits.iter().copied().rev().find(has_failed) {
        return Progress::Failed(failed);
    }
    for (place, init) in inits.iter().enumerate().rev() {
        match state(*init) {
            None | Some(State::Created) => {}
            Some(State::Running) => return Progress::Running,
            Some(State::Exited { .. }) => {
                return inits.get(place + 1).map_or(Progress::Done, |next| Progress::Next(*next));
            }
        }
    }
    inits.first().map_or(Progress::Done, |first| Progress::Next(*first))
}

#[cfg(test)]
mod tests {
    use pod_lifecycle::PodTime;

    use super::super::ledger::Ledger;
    use super::super::setup::{KubeletSetup, KubeletVersion, PodContainer};
    use super::super::status::{List, Listed};
    use super::*;

    /// What it wants of two init containers and a regular one, whose newest containers are in these states.
    fn wants(policy: RestartPolicy, states: [Option<State>; 3]) -> (Vec<usize>, bool) {
        let parts = [SpecPart::Init, SpecPart::Init, SpecPart::Regular];
        let containers = parts.into_iter().zip(["i0", "i1", "app"]);
        let setup = KubeletSetup {
            version: KubeletVersion::Unaware,
            policy,
            seed: 0,
            grace: std::time::Duration::from_secs(5),
            containers: containers
                .map(|(part, name)| PodContainer { part, ..PodContainer::named(name) })
                .collect(),
        };
        let mut listed = List::default();
        for (container, state) in states.into_iter().enumerate() {
            let Some(state) = state else { continue };
            let (id, since) = (setup.containers[container].name.as_str().into(), PodTime::ZERO);
            listed.add(Listed { id, container, image: 0, state, since, was_signalled: false });
        }
        let input = SyncInput {
            setup: &setup,
            images: &[0; 3],
            listed: &listed,
            failed_probes: &std::collections::BTreeSet::new(),
            ledger: &Ledger::default(),
        };
        let Actions { kill_pod, start, .. } = decide(&input);
        (start, kill_pod)
    }

    #[test]
    fn its_init_containers_run_one_after_another_and_before_all_others() {
        let exited = |code| Some(State::Exited { code, at: PodTime::ZERO });
        let always = |states| wants(RestartPolicy::Always, states);
        assert_eq!(always([None, None, None]), (vec![0], false));
        assert_eq!(always([Some(State::Created), None, None]), (vec![0], false));
        assert_eq!(always([Some(State::Running), None, None]), (vec![], false));
        assert_eq!(always([exited(0), None, None]), (vec![1], false));
        assert_eq!(always([exited(0), exited(1), None]), (vec![1], false));
        assert_eq!(always([exited(0), exited(0), None]), (vec![2], false));
        // A completed one that was removed.
        assert_eq!(always([None, exited(0), Some(State::Running)]), (vec![], false));
        assert_eq!(wants(RestartPolicy::Never, [exited(1), None, None]), (vec![], true));
    }
}
