//! The end of a stop (T14).

use pod_spec::{RestartPolicy, Role};

use crate::container::Container;
use crate::container::ending::NextExit;
use crate::container::phase::Phase;
use crate::interface::action::Action;
use crate::interface::milestone::{Milestone, SignalCause};
use crate::member::{GateState, Release, Started};
use crate::questions::completion::held_may_be_stopped_yet;
use crate::questions::grace::grace_of;
use crate::questions::order::turn_has_come;
use crate::rules::gate::program_started;
use crate::state::State;
use crate::stop::{MIN_KILL_DELAY, Stop, StopCause};

/// T14: a stop is over when everything it covers is final. Then what was created meanwhile starts in order. A stop
/// for good is never over.
pub(crate) fn end_stop_if_over(pod: &mut State) {
    if pod.stop.as_ref().is_none_or(Stop::is_for_good) {
        return;
    }
    let ours = pod.stop.as_ref().is_some_and(Stop::is_ours);
    let going_on = pod.planned().any(|(state, container)| {
        // A container that ends in order to be restarted (U4, T16) goes on when the stop is over.
        let covered = state.asked.is_some()
            // T2: also a container that exited before its signal, and whose start has not been answered.
            || (ours && state.member.role != Role::Sidecar)
            || (container.ending.term_at.is_some() && container.ending.next_exit != NextExit::Restart)
            || container.ending.next_exit == NextExit::Final
            || (state.member.role == Role::Sidecar && turn_has_come(pod, container));
        covered && container.is_ending()
    });
    if going_on || held_may_be_stopped_yet(pod) {
        return;
    }
    end_stop(pod);
}

/// T14: members that have ended wait for their gates again; what lives goes on.
pub(crate) fn end_stop(pod: &mut State) {
    if pod.stop.as_ref().is_some_and(|stop| stop.cause == StopCause::Completed) {
        pod.another_round_until = None;
    }
    pod.stop = None;
    pod.round += 1;
    let is_job = pod.policy() != RestartPolicy::Always;
    for index in 0..pod.members.len() {
        let lives = pod.current(index).is_some_and(Container::is_alive);
        let state = &mut pod.members[index];
        // J11: in a job the ends of the mains are kept.
        state.ended = state.ended.filter(|_| is_job);
        state.asked = None;
        state.was_started = Started::Never;
        // A stop that turned out to be no stop of the pod opens no gate.
        (state.gate, state.release) = match (lives, state.gate) {
            (true, GateState::Open) => (GateState::Open, Release::Released),
            (true, _) => (GateState::Closed, Release::Released),
            (false, _) => (GateState::Closed, Release::Waiting),
        };
        let current = state.current.as_ref().and_then(|id| pod.containers.get_mut(id));
        let Some(container) = current else { continue };
        container.hooks.new_round();
        // U6 counts from now, as only now they wait for their gates.
        match &mut container.phase {
            Phase::Held(hold) => {
                hold.counts_from(pod.now);
                state.was_started = Started::Before;
            }
            Phase::Running { .. } if container.ending.term_at.is_none() => {
                let id = container.id.clone();
                program_started(pod, &id);
            }
            _ => {}
        }
    }
    pod.record_of_pod(Milestone::StopEnded);
    pod.emit_change(Action::Note("pod stop is over".to_owned()));
}

/// T12: a kubelet that stops a pod creates nothing in it. So its stops were stops of single containers.
pub(crate) fn give_up_callers_stop(pod: &mut State) {
    if pod.stop.as_ref().is_some_and(|stop| stop.cause == StopCause::Caller) {
        pod.emit_change(Action::Note("the pod was not stopped: its kubelet creates a container".to_owned()));
        take_back_turns(pod);
        end_stop(pod);
    }
}

/// Sidecars that had their turn in a stop that turned out to be no stop of the pod, and that no caller has stopped:
/// they have their signal, so they end, and are started again (R2).
pub(crate) fn take_back_turns(pod: &mut State) {
    let stopped = pod.planned_where(|state, container| {
        state.member.role == Role::Sidecar
            && state.asked.is_none()
            && container.has_process()
            && container.ending.term_at.is_some()
    });
    for id in stopped {
        let grace = grace_of(pod, &id).max(MIN_KILL_DELAY);
        let Some(container) = pod.containers.get_mut(&id) else { continue };
        if let Phase::Starting { signals, .. } = &mut container.phase {
            // The signal has not been sent yet.
            signals.retain(|(_, _, cause)| *cause == SignalCause::Caller);
            container.ending.taken_back();
        } else {
            container.ending.next_exit = NextExit::Restart;
            container.ending.kill_by(pod.now + grace);
        }
    }
}
