//! Whose turn it is in a stop, and its budget (T1, T6).

use pod_spec::Role;

use crate::container::ending::NextExit;
use crate::container::phase::{Part, Phase};
use crate::interface::id::ContainerId;
use crate::interface::milestone::{Milestone, SignalCause};
use crate::interface::operation::Reach;
use crate::interface::time::PodTime;
use crate::questions::grace::grace_without_caller;
use crate::questions::order::turn_has_come;
use crate::rules::sandbox::end_sandbox;
use crate::rules::zero_grace::share_zero_grace;
use crate::state::State;
use crate::steps::hooks::stop_after_hooks;
use crate::steps::signal::{deliver_stop, kill_now, thaw};
use crate::stop::{Budget, Stop};

/// T1, T3, K8: sidecars whose turn has come get their stop signal.
pub(crate) fn take_turns(pod: &mut State) {
    let stopping = pod.stop.is_some();
    let ready: Vec<_> = pod.planned_where(|state, container| {
        state.member.role == Role::Sidecar
            // A sidecar that is being started has its turn once it runs: a main may start before that (T1).
            && matches!(container.phase, Phase::Running { .. })
            && (stopping || container.ending.held_signal.is_some())
            && (container.ending.term_at.is_none() || container.ending.next_exit == NextExit::Restart)
            && turn_has_come(pod, container)
    });
    for id in ready {
        let Some(container) = pod.containers.get_mut(&id) else { continue };
        container.ending.next_exit = NextExit::Final;
        // U4's stop of an unready sidecar becomes its last stop; its signal is not repeated.
        if container.ending.term_at.is_none() {
            let grace = grace_without_caller(pod, &id);
            stop_after_hooks(pod, &id, None, grace);
            share_zero_grace(pod, &id);
        } else {
            container.ending.held_signal = None;
            pod.mark_changed();
        }
    }
}

/// The budget (T5, T6) and the sandbox's own end (K13).
pub(crate) fn apply_budget(pod: &mut State) {
    let Some(stop) = &pod.stop else { return };
    match stop.budget {
        Budget::Until { kill_at, .. } | Budget::LastCall { kill_at } if pod.now >= kill_at => {
            kill_everything(pod);
        }
        Budget::Until { at, kill_at } if pod.now >= at => last_call(pod, kill_at),
        _ => {}
    }
    end_sandbox(pod);
}

pub(crate) fn set_budget(pod: &mut State, budget: Budget) {
    if let Some(stop) = &mut pod.stop {
        stop.budget = budget;
    }
    pod.mark_changed();
}

/// T6: every container that is left gets a stop signal at the same moment, if it had none.
pub(crate) fn last_call(pod: &mut State, kill_at: PodTime) {
    set_budget(pod, Budget::LastCall { kill_at });
    pod.record_of_pod(Milestone::LastCall);
    for id in still_to_end(pod) {
        if pod.containers.get(&id).is_some_and(|container| container.ending.term_at.is_none()) {
            deliver_stop(pod, &id, None);
        }
        // K17.
        thaw(pod, &id);
    }
}

pub(crate) fn kill_everything(pod: &mut State) {
    set_budget(pod, Budget::Spent);
    pod.record_of_pod(Milestone::BudgetSpent);
    for id in still_to_end(pod) {
        kill_now(pod, &id, Reach::All, SignalCause::Budget);
    }
}

/// The containers that podshim itself ends in a stop: planned ones whose program was started. In a stop for good
/// also all others but the sandbox (K13: the network namespace outlives every container).
pub(crate) fn still_to_end(pod: &State) -> Vec<ContainerId> {
    let everything = pod.stop.as_ref().is_some_and(Stop::is_for_good);
    pod.containers
        .values()
        .filter(|container| match container.part {
            Part::Sandbox => false,
            Part::Passthrough => everything && container.has_process(),
            Part::Member(_) => container.is_alive() || (everything && container.has_process()),
        })
        .map(|container| container.id.clone())
        .collect()
}
