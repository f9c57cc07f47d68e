//! What one sync of a kubelet with native sidecars wants (1.29 and later; `computeInitContainerActions`).
//!
//! Owns the order of init containers, one at a time, and of the restartable ones beside the others.

use pod_spec::RestartPolicy;

use super::setup::SpecPart;
use super::status::{Listed, State};
use super::sync::{Actions, Reason, SyncInput, ephemerals, is_started_again, regulars};

pub(super) fn decide(input: &SyncInput<'_>) -> Actions {
    let mut actions = Actions::default();
    if is_terminal(input) {
        actions.kill_pod = true;
        return actions;
    }
    let is_initialized = inits(input, &mut actions);
    if actions.kill_pod || !is_initialized {
        ephemerals(input, &mut actions);
        return actions;
    }
    let mut mains = Actions::default();
    regulars(input, &mut mains);
    if mains.kill_pod {
        // Sidecars do not keep the pod alive.
        return Actions { kill_pod: true, ..Actions::default() };
    }
    actions.kill.extend(mains.kill);
    actions.start.extend(mains.start);
    ephemerals(input, &mut actions);
    actions
}

/// A kubelet ends a pod whose phase is final before it looks at its containers (`SyncPod`, `getPhase`): a sidecar that
/// ended with the last main is not restarted.
fn is_terminal(input: &SyncInput<'_>) -> bool {
    let mut regular = input
        .setup
        .containers
        .iter()
        .enumerate()
        .filter(|(_, container)| container.part == SpecPart::Regular);
    regular.all(|(container, _)| {
        input.listed.newest(container).is_some_and(|newest| {
            matches!(newest.state, State::Exited { .. })
                && !is_started_again(newest, input.setup.policy_of(container))
        })
    })
}

/// Looks at the init containers, the last one first; returns whether all are done or started.
fn inits(input: &SyncInput<'_>, actions: &mut Actions) -> bool {
    let of = |wanted: fn(SpecPart) -> bool| {
        let parts = input.setup.containers.iter().enumerate();
        parts.filter(|(_, container)| wanted(container.part)).map(|(index, _)| index).collect::<Vec<_>>()
    };
    let inits = of(|part| matches!(part, SpecPart::Init | SpecPart::Sidecar));
    let Some(last) = inits.last().copied() else { return true };
    // Completed ones may have been removed: a live main shows that they are done.
    let lives = |container: &usize| {
        input.listed.newest(*container).is_some_and(|newest| !matches!(newest.state, State::Exited { .. }))
    };
    let mut is_initialized = of(|part| part == SpecPart::Regular).iter().any(lives);
    let mut is_previously_initialized = is_initialized;
    for (place, init) in inits.iter().copied().enumerate().rev() {
        let is_sidecar = input.setup.containers[init].part == SpecPart::Sidecar;
        let Some(newest) = input.listed.newest(init) else {
            if is_previously_initialized && is_sidecar {
                actions.start.push(init);
            }
            continue;
        };
        if is_previously_initialized && !is_sidecar {
            continue;
        }
        let mut go_on = |actions: &mut Actions| {
            if init == last {
                is_initialized = true;
            } else if is_sidecar && is_previously_initialized {
                // The next one has its own status.
            } else {
                actions.start.extend(inits.get(place + 1));
            }
        };
        match (newest.state, is_sidecar) {
            (State::Created, _) => actions.start.push(init),
            (State::Running, false) => {}
            (State::Running, true) => {
                if has_started(input, newest) {
                    go_on(actions);
                } else if !input.failed_probes.contains(&newest.id) {
                    is_previously_initialized = true;
                    continue;
                }
                if let Some(Reason::Changed | Reason::Probe) = input.reason_to_kill(newest) {
                    actions.kill.push(newest.id.clone());
                    actions.start.push(init);
                }
            }
            (State::Exited { .. }, true) => actions.start.push(init),
            (State::Exited { code: 0, .. }, false) => go_on(actions),
            (State::Exited { .. }, false) if input.setup.policy_of(init) == RestartPolicy::Never => {
                *actions = Actions { kill_pod: true, ..Actions::default() };
                return false;
            }
            (State::Exited { .. }, false) => actions.start.push(init),
        }
        is_previously_initialized = true;
    }
    if !is_previously_initialized {
        actions.start.extend(inits.first());
    }
    actions.start.sort_unstable();
    actions.start.dedup();
    is_initialized
}

/// Whether the next init container may follow a sidecar.
fn has_started(input: &SyncInput<'_>, newest: &Listed) -> bool {
    !input.setup.containers[newest.container].has_startup_probe || input.ledger.runs(&newest.id)
}
