//! The end of a stop, and with it of a round (T14, T18).
//!
//! Owns when a stop is over, and what goes on then. Never begins a stop: `rules::stop` does.
//! Changes: container, hold, ending, hooks, callers stop, member, pair, rounds, failure, stop.

use pod_spec::Role;

use crate::interface::milestone::Milestone;
use crate::interface::stop_cause::StopCause;
use crate::member::gate::NewestTask;
use crate::questions::completion::others_may_be_stopped_yet;
use crate::questions::deadlines;
use crate::questions::grace::grace_of;
use crate::questions::order::{comes_after, turn_has_come};
use crate::rules::gate::program_started;
use crate::state::State;
use crate::steps::signal::kill_after_term;
use crate::stop::{MIN_KILL_DELAY, Stop};

/// T14, T10: a stop is over when everything it covers is final, however much of its budget is left. Then what was created meanwhile starts in order. A stop
/// for good is never over.
pub(crate) fn end_stop_if_over(pod: &mut State) {
    if pod.stop().is_none_or(Stop::is_for_good) {
        return;
    }
    let ours = pod.stop().is_some_and(Stop::is_ours);
    let going_on = pod.planned().any(|(state, container)| {
        // A container that ends in order to be restarted (U4, T16) goes on when the stop is over.
        let covered = state.asked().is_some()
            // T2: also a container that exited before its signal, and whose start has not been answered.
            || (ours && state.role() != Role::Sidecar)
            || (container.ending.is_signalled() && !container.ending.ends_for_restart())
            || container.ending.is_final()
            || container.ending.is_revoked()
            || (state.role() == Role::Sidecar && turn_has_come(pod, container));
        covered && container.is_ending()
    });
    let resumes_later = deadlines::end_of_restart(pod).is_some();
    if going_on || resumes_later || others_may_be_stopped_yet(pod) {
        return;
    }
    end_stop(pod);
}

/// T18: a caller that removes all containers of a living sandbox and makes them again (KEP-5532) wants the pod from the
/// start. A shim sees no RemoveContainer: the sign is that the caller stopped a completed init, and nothing is left.
/// Here for containers that ended one by one; at the end of a stop it is `end_stop`.
pub(crate) fn begin_again_if_emptied(pod: &mut State) {
    note_end_of_all(pod);
    if pod.is_stopping() || !forget_stopped_inits(pod) {
        return;
    }
    pod.rounds.end();
    begin_round(pod, NewestTask::Lives);
    pod.note("another round begins: nothing of the pod is left");
}

/// T18: from now on a completed init that is created again before anything that comes after it runs again.
fn note_end_of_all(pod: &mut State) {
    if pod.all_are_gone() {
        pod.rounds.all_have_ended();
        for index in 0..pod.members().len() {
            pod.member_mut(index).all_have_ended();
        }
    }
}

/// T18: a caller creates a planned container. A completed init that comes back once everything has ended runs again.
pub(crate) fn begin_again_if_recreated(pod: &mut State, index: usize) {
    for init in 0..pod.members().len() {
        if comes_after(pod, index, init) {
            pod.member_mut(init).not_waited_for();
        }
    }
    let is_first = pod.all_are_gone();
    if is_first && !pod.is_stopping() && !pod.member(index).was_never_created() {
        clear_failure_after(pod, index);
    }
    if !pod.member(index).runs_again_if_recreated() {
        return;
    }
    pod.member_mut(index).begin_again();
    pod.note(format!("{} runs again: its caller has stopped all containers", pod.member(index)));
    if !pod.rounds.was_emptied() || pod.is_stopping() {
        return;
    }
    pod.rounds.end();
    begin_round(pod, NewestTask::IsRecreated);
    pod.note("another round begins: nothing of the last one is left");
}

/// I2: a caller creates again what comes before the container that failed the pod, and nothing of the pod is left: it makes all
/// of it again, and the failed one will be next.
fn clear_failure_after(pod: &mut State, index: usize) {
    let failed = pod.failure().map(|failure| failure.member);
    if let Some(failed) = failed.filter(|failed| comes_after(pod, *failed, index)) {
        pod.clear_failure_of(failed);
    }
}

/// T18: the completed inits that their caller stopped run again, if nothing planned is left. Returns whether there are any.
fn forget_stopped_inits(pod: &mut State) -> bool {
    let policy = pod.policy();
    let is_one = |index: &usize| pod.member(*index).was_stopped_when_done(policy);
    let stopped: Vec<_> = (0..pod.members().len()).filter(is_one).collect();
    if stopped.is_empty() || !pod.all_are_gone() {
        return false;
    }
    for index in stopped {
        pod.member_mut(index).begin_again();
        pod.note(format!("{} runs again: its caller has stopped all containers", pod.member(index)));
    }
    true
}

/// The stop is over, and another round begins.
fn end_stop(pod: &mut State) {
    pod.callers_stop.close();
    match pod.end_stop() {
        Some(stop) if stop.cause() == StopCause::Completed => pod.rounds.end_complete(),
        _ => pod.rounds.end(),
    }
    forget_stopped_inits(pod);
    begin_round(pod, NewestTask::Lives);
    pod.record_of_pod(Milestone::StopEnded);
    pod.note("pod stop is over");
}

/// T14: members that have ended wait for their gates again; what is left goes on, as that kind of task.
fn begin_round(pod: &mut State, left: NewestTask) {
    let (now, policy) = (pod.now(), pod.policy());
    for index in 0..pod.members().len() {
        let newest = match pod.current(index) {
            Some(container) if container.is_unfinished() => left,
            _ => NewestTask::IsGone,
        };
        pod.member_mut(index).end_round(newest, policy);
        let Some(id) = pod.member(index).current().cloned() else { continue };
        let Some(container) = pod.container_mut(&id) else { continue };
        container.hooks.new_round();
        if let Some(hold) = container.hold_mut() {
            // U6 counts from now, as only now it waits for its gates.
            hold.counts_from(now);
            pod.member_mut(index).pair.caller_starts();
        } else if container.runs() && !container.ending.is_signalled() {
            program_started(pod, &id);
        }
    }
    if !pod.all_are_gone() {
        pod.rounds.something_lives();
    }
}

/// T12: a kubelet that stops a pod creates nothing in it. So its stops were stops of single containers, and all that podshim has begun
/// because of them is dropped: turns, hooks and the window.
pub(crate) fn take_back_callers_stop(pod: &mut State) {
    if pod.stop().is_some_and(|stop| stop.cause() == StopCause::Caller) {
        pod.note("the pod was not stopped: its kubelet creates a container");
        take_back_turns(pod);
        take_back_ended_starts(pod);
        end_stop(pod);
    }
}

/// J11: under Never a caller recreates a main that has failed only on purpose (KEP-5307): its end counts no more, and the pod is not
/// complete. What else is recreated ends with the pod, in the time that its stop has (T9).
pub(crate) fn take_back_completion(pod: &mut State, created: usize) {
    let completes = pod.stop().is_some_and(|stop| stop.cause() == StopCause::Completed);
    let counts_no_more = pod.member(created).role() == Role::Main && pod.member(created).ended().is_none();
    if completes && counts_no_more {
        pod.note("the pod is not complete: its caller creates a main once more");
        take_back_turns(pod);
        take_back_ended_starts(pod);
        end_stop(pod);
    }
}

/// T12: what never ran, and whose start podshim has ended with the stop, is started again: its caller has not asked for its end, and
/// under Never would not make it once more.
fn take_back_ended_starts(pod: &mut State) {
    let ended = pod.planned_where(|state, container| {
        let is_asked = state.asked().is_some() || container.ending.is_asked();
        container.is_starting() && container.never_ran() && container.ending.is_killed() && !is_asked
    });
    for id in ended {
        if let Some(container) = pod.container_mut(&id) {
            container.ending.end_start_only();
        }
    }
}

/// Sidecars that no caller has stopped, and whose turn had come or was about to: one that has its signal ends, and is started again
/// (R2). Of the others each goes on as if nothing had been; its hook may end.
fn take_back_turns(pod: &mut State) {
    let begun =
        pod.planned_where(|state, container| state.role() == Role::Sidecar && container.has_process());
    for id in begun {
        let (now, grace) = (pod.now(), grace_of(pod, &id).max(MIN_KILL_DELAY));
        let Some(container) = pod.container_mut(&id) else { continue };
        // F11: its caller has killed it before its Start was answered, and waits for its exit.
        if container.ending.is_undone() {
            continue;
        }
        // K11, T7: the stop that its caller's SIGKILL was a part of ends it no more.
        if container.ending.is_killed_in_stop() {
            kill_after_term(pod, &id);
            continue;
        }
        // In this round or before: its caller waits for its end.
        let is_asked = container.ending.is_asked();
        let waits = container.hooks.has_waiting_stop() && !container.ending.ends_for_restart();
        match (is_asked, container.ending.is_signalled()) {
            (false, true) => {
                let had_not_been_sent = container.drop_deferred_signals_of_podshim();
                if !had_not_been_sent {
                    let signalled_at = container.ending.signalled_at().unwrap_or(now);
                    container.ending.take_back_turn(signalled_at + grace);
                }
            }
            (false, false) if waits => {
                container.ending.take_back();
                // U4, V4: an end in order to be restarted goes on.
                if !container.ending.ends_for_restart() {
                    container.hooks.take_back();
                }
            }
            // T16: its caller has stopped it alone, after all.
            (true, true) => container.ending.take_back_last_turn(),
            // T3: the signal of its caller waits for another turn.
            (true, false) if waits && !container.ending.is_alone() => {
                container.ending.wait_for_next_turn();
                if !container.ending.ends_for_restart() {
                    container.hooks.stop_waiting();
                }
            }
            _ => {}
        }
    }
}
