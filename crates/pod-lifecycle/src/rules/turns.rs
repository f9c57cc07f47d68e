//! Whose turn it is in a stop, and what its budget orders (T1, T3, T5, T6, T19, K8).
//!
//! Owns which sidecar gets its signal now, the last call and the kill. A stop's order is the start order reversed: the same
//! `needs` relation decides both. Never decides who needs whom: `questions::order` does. Changes: ending, stop.

use pod_spec::Role;

use crate::container::phase::Part;
use crate::interface::id::ContainerId;
use crate::interface::milestone::{Milestone, SignalCause};
use crate::interface::operation::Reach;
use crate::interface::time::PodTime;
use crate::questions::deadlines;
use crate::questions::grace::grace_without_caller;
use crate::questions::hooks::turn_has_passed;
use crate::questions::order::turn_has_come;
use crate::rules::sandbox::end_sandbox;
use crate::rules::zero_grace::share_zero_grace;
use crate::state::State;
use crate::steps::hooks::{hold_again, stop_after_hooks};
use crate::steps::signal::{deliver_stop, kill_now, thaw};
use crate::stop::{Budget, Stop};

/// T1, T3, K8: sidecars whose turn has come get their stop signal, restarted ones too (R3).
pub(crate) fn take_turns(pod: &mut State) {
    pass_turns(pod);
    let stopping = pod.is_stopping();
    let ready: Vec<_> = pod.planned_where(|state, container| {
        state.role() == Role::Sidecar
            // A sidecar that is being started has its turn once it runs: a main may start before that (T1).
            && container.runs()
            // K13, K11: after SIGKILL a stop signal has nothing to end.
            && !container.ending.is_killed()
            && (stopping || container.ending.held_signal().is_some())
            // T16: its end has begun already, whatever its turn.
            && !container.ending.is_alone()
            && (!container.ending.is_signalled() || container.ending.ends_for_restart())
            && turn_has_come(pod, container)
    });
    for id in ready {
        let Some(container) = pod.container_mut(&id) else { continue };
        // U4's stop of an unready sidecar becomes its last stop; its signal is not repeated.
        if container.ending.is_signalled() {
            container.ending.end_for_good();
            container.ending.let_last_signal_count();
            pod.mark_changed();
            share_zero_grace(pod, &id);
            continue;
        }
        container.ending.take_turn();
        let grace = grace_without_caller(pod, &id);
        stop_after_hooks(pod, &id, None, grace);
        share_zero_grace(pod, &id);
    }
}

/// T3: a container that needs the sidecar was started while its hooks ran: its end has not begun after all.
fn pass_turns(pod: &mut State) {
    let passed = pod
        .planned_where(|_, container| container.hooks.has_waiting_stop() && turn_has_passed(pod, container));
    for id in passed {
        hold_again(pod, &id);
    }
}

/// The budget (T5, T6) and the sandbox's own end (K13).
pub(crate) fn apply_budget(pod: &mut State) {
    let Some(budget) = pod.stop().map(Stop::budget) else { return };
    if deadlines::budget(pod).is_some_and(|at| pod.now() >= at) {
        match budget {
            Budget::Until { kill_at, .. } if pod.now() < kill_at => last_call(pod, kill_at),
            _ => kill_everything(pod),
        }
    }
    end_sandbox(pod);
}

/// T6: every container that is left gets a stop signal at the same moment, if it had none.
fn last_call(pod: &mut State, kill_at: PodTime) {
    if let Some(stop) = pod.stop_mut() {
        stop.last_call(kill_at);
    }
    pod.mark_changed();
    for id in left_at(pod, Milestone::LastCall) {
        if pod.container(&id).is_some_and(|container| !container.ending.is_signalled()) {
            deliver_stop(pod, &id, None);
        }
        // K17.
        thaw(pod, &id);
    }
}

/// T6: the budget is spent.
fn kill_everything(pod: &mut State) {
    if let Some(stop) = pod.stop_mut() {
        stop.spend();
    }
    pod.mark_changed();
    for id in left_at(pod, Milestone::BudgetSpent) {
        kill_now(pod, &id, Reach::All, SignalCause::Budget);
    }
}

/// T19: what others stop after has had its part of the time: its stop signal, if it had none, and SIGKILL later.
pub(crate) fn end_part(pod: &mut State, id: &ContainerId) {
    let Some(container) = pod.container_mut(id) else { return };
    if container.ending.has_last_stop_signal() || container.exited_during_start() {
        return kill_now(pod, id, Reach::All, SignalCause::Budget);
    }
    container.ending.end_part();
    if container.ending.is_signalled() {
        pod.mark_changed();
    } else {
        deliver_stop(pod, id, None);
        limit_without_caller(pod, id);
    }
    // K17.
    thaw(pod, id);
}

/// T17: also where what had to stop after the sidecar ends soon, and T19 sends it no SIGKILL then.
fn limit_without_caller(pod: &mut State, id: &ContainerId) {
    let grace = grace_without_caller(pod, id).filter(|_| pod.role_of(id) == Some(Role::Sidecar));
    let at = grace.map(|grace| pod.now() + grace);
    if let (Some(at), Some(container)) = (at, pod.container_mut(id)) {
        container.ending.kill_by(at);
    }
}

/// What is still to end at the end of the budget. A pod that has ended in time has nothing to record.
fn left_at(pod: &mut State, milestone: Milestone) -> Vec<ContainerId> {
    let left = still_to_end(pod);
    if !left.is_empty() {
        pod.record_of_pod(milestone);
    }
    left
}

/// The containers that podshim itself ends in a stop: planned ones whose program was started. In a stop for good
/// also all others but the sandbox (K13: the network namespace outlives every container).
fn still_to_end(pod: &State) -> Vec<ContainerId> {
    let everything = pod.stop().is_some_and(Stop::is_for_good);
    pod.containers()
        .filter(|container| match container.part() {
            Part::Sandbox => false,
            Part::Passthrough => everything && container.has_process(),
            Part::Member(_) => container.is_unfinished() || (everything && container.has_process()),
        })
        .map(|container| container.id().clone())
        .collect()
}
