//! What the last exit of a container means: it is final, it is hidden, or a restart begins (R1, R2, R7, I3 to I7, J9, V2).
//!
//! Owns that decision, once nothing of the container is left (CONTRACT §6). Never decides whether a program runs again:
//! `questions::restarts` does. Changes: container, ending, hooks, restarts, member, rounds.

use std::time::Duration;

use pod_spec::{RestartPolicy, Role};

use crate::container::Container;
use crate::container::hooks::SUSPECT_EXITS;
use crate::container::phase::{ExitedFrom, Phase};
use crate::interface::action::{Action, LineTarget};
use crate::interface::exit::{Exit, NEVER_RAN, START_FAILED};
use crate::interface::id::ContainerId;
use crate::interface::spec::KubeletType;
use crate::member::MemberState;
use crate::member::evidence::EndedBy;
use crate::questions::evidence::ended_by;
use crate::questions::grace::grace_of;
use crate::questions::order::{may_be_awaited, stands_by};
use crate::questions::pod_restart::{is_renewed, restarts_pod};
use crate::questions::restarts::{LastRun, is_not_repeated, is_restart_wanted, restarts_after};
use crate::rules::failure::{fail_pod, stop_if_fatal};
use crate::rules::pod_restart::restart_after_failure;
use crate::rules::replacement::go_on_without;
use crate::rules::standby::{become_standby, takeover_failed};
use crate::state::State;
use crate::steps::back_off::{back_off, restart_later};
use crate::steps::finish::finish;
use crate::steps::hooks::stop_after_hooks;
use crate::steps::renew::renew;

/// Goes on once the init's exit may be the last exit of its container.
pub(crate) fn finish_if_drained(pod: &mut State, id: &ContainerId) {
    let Some(container) = pod.container(id) else { return };
    let Phase::Draining { exit, was, op: None } = *container.phase() else { return };
    if container.has_running_execs() || container.hooks.is_running() {
        return;
    }
    match was {
        ExitedFrom::Created => finish(pod, id, exit),
        ExitedFrom::EndingUnrun { code } => {
            let restarts_are_spent = code == START_FAILED && !container.is_first_try();
            finish(pod, id, Exit { code, at: exit.at });
            // An end that no caller requested is a failure like one of the program, unless the pod itself had failed
            // before.
            if let (NEVER_RAN | START_FAILED, Some(index), None) =
                (code, pod.container(id).and_then(Container::member), pod.failure())
            {
                stop_if_fatal(pod, index, code);
                if restarts_are_spent {
                    go_on_without(pod, index);
                }
            }
        }
        // R7: no caller asked for this; the container is recreated and goes on waiting.
        ExitedFrom::Held => back_off(pod, id, exit),
        ExitedFrom::Running { ran, .. } => program_ended(pod, id, exit, ran),
    }
}

/// The program of a container has ended.
fn program_ended(pod: &mut State, id: &ContainerId, exit: Exit, ran: Duration) {
    let Some(container) = pod.container_mut(id) else { return };
    container.restarts.exited(ran);
    if hold_again_if_standby(pod, id, exit) {
        return;
    }
    let Some(container) = pod.container(id) else { return };
    if pod.member_of(container).is_some_and(MemberState::restarts_pod) {
        pod.restarts.exited(ran);
    }
    let Some(container) = pod.container(id) else { return };
    match pod.role(container) {
        // R2 before R14: as long as a container needs it a sidecar comes back in the stop.
        Some(_) if is_renewed(pod, container) && !restarts_after(pod, container, exit.code) => {
            renew(pod, id, exit);
        }
        // I4: who ended it counts before its code.
        Some(Role::Init) if exit.code == 0 && !container.was_interrupted() => init_completed(pod, id, exit),
        Some(_) if restarts_after(pod, container, exit.code) => {
            // I7: a container that podshim ended for its group's failure is not another failure.
            if container.ending.next_exit().is_unasked() {
                fail_group_of(pod, id);
            }
            suspect_hook_of(pod, id);
            restart_later(pod, id, exit);
        }
        Some(_) if restarts_pod(pod, container, exit.code) => restart_after_failure(pod, id, exit),
        Some(_) => {
            let last_run = LastRun::of(pod, container, exit.code);
            ended_for_good(pod, id, exit, last_run);
        }
        None => finish(pod, id, exit),
    }
}

/// podshim does not run the program again: the exit is shown, and a caller may recreate the container.
pub(crate) fn ended_for_good(pod: &mut State, id: &ContainerId, exit: Exit, last_run: LastRun) {
    let Some(container) = pod.container(id) else { return };
    let Some(index) = container.member() else { return };
    let by = ended_by(pod, container);
    // T15: what its caller has stopped fails nothing, and the pod does not go on without it: it may come back.
    let unasked = !container.ending.is_final() && by == EndedBy::Other;
    finish(pod, id, exit);
    if pod.member(index).role() == Role::Init {
        // I2.
        if unasked && !pod.is_stopping() && is_not_repeated(pod, index, last_run) {
            fail_pod(pod, index, format!("failed with {}", exit.code));
        }
        return;
    }
    if by == EndedBy::Other {
        stop_if_fatal(pod, index, exit.code);
    }
    if unasked {
        go_on_without(pod, index);
    }
}

/// I7: the first failure in a parallel group is the group's failure: the others are ended and, where inits are
/// retried, retried with it.
fn fail_group_of(pod: &mut State, id: &ContainerId) {
    let Some(index) = pod.container(id).and_then(Container::member) else { return };
    let failed = pod.member(index).member().clone();
    if failed.role != Role::Init {
        return;
    }
    let rest = pod.planned_where(|state, container| {
        state.member().entry == failed.entry
            && container.id() != id
            && matches!(container.phase(), Phase::Starting { .. } | Phase::Running { .. })
    });
    for other in rest {
        let grace = grace_of(pod, &other);
        if let Some(container) = pod.container_mut(&other)
            && !container.ending.is_signalled()
            && !container.hooks.has_waiting_stop()
        {
            container.ending.end_for_restart();
            // H1: a hook of a stop that was taken back may still run in it.
            stop_after_hooks(pod, &other, None, Some(grace));
        }
    }
}

/// An init has completed (I4): its exit is shown, or hidden from a caller that would run it again (I5).
fn init_completed(pod: &mut State, id: &ContainerId, exit: Exit) {
    let Some(container) = pod.container(id) else { return };
    let Some(index) = container.member() else { return };
    let is_awaited = may_be_awaited(pod, index);
    // R14: what callers have seen end cannot run again with its pod.
    let may_run_again = pod.restarts_as_a_whole();
    let hides = (pod.policy() == RestartPolicy::Always || may_run_again)
        && container.spec().kubelet_type != Some(KubeletType::Init)
        && pod.member(index).asked().is_none()
        // Its Start was not answered: its caller kills and deletes it, and waits for the exit.
        && !container.ending.is_undone()
        && !pod.is_stopping()
        && !is_awaited;
    pod.member_mut(index).complete(exit);
    let quiet_until = pod.now() + pod.replace_wait();
    pod.rounds.init_completed(quiet_until);
    pod.mark_changed();
    if !hides {
        return finish(pod, id, exit);
    }
    if let Some(container) = pod.container_mut(id) {
        container.hide(exit);
    }
}

/// The program of one of a pair has ended. Returns whether its container is held now, instead of being restarted or
/// shown.
fn hold_again_if_standby(pod: &mut State, id: &ContainerId, exit: Exit) -> bool {
    takeover_failed(pod, id, &format!("it exited with {}", exit.code));
    let Some(container) = pod.container(id) else { return false };
    if !stands_by(pod, container) || pod.is_stopping() || !is_restart_wanted(pod, container) {
        return false;
    }
    become_standby(pod, id);
    back_off(pod, id, exit);
    true
}

/// H6: a hook that ends its container before its turn makes R2 restart it again and again. podshim logs that; the
/// restarts go on with their delays.
fn suspect_hook_of(pod: &mut State, id: &ContainerId) {
    let stopping = pod.is_stopping();
    let Some(container) = pod.container_mut(id) else { return };
    if stopping && container.hooks.count_early_exit() {
        let line = format!(
            "exited {SUSPECT_EXITS} times while the pod stops and before its turn: \
             is it the on-terminate hook that ends it?"
        );
        pod.emit_change(Action::WriteLine { container: id.clone(), line, to: LineTarget::Log });
    }
}
