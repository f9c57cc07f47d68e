//! Standby sidecars (V-rules).

use crate::container::Container;
use crate::container::ending::NextExit;
use crate::container::phase::{Phase, Program};
use crate::container::restarts::Restarts;
use crate::container::takeover::{TakeOver, TakeoverStage};
use crate::interface::action::{Action, Reply, Tell};
use crate::interface::id::{ContainerId, RequestId};
use crate::interface::milestone::Milestone;
use crate::interface::operation::Hook;
use crate::interface::outcome::{Outcome, Refusal};
use crate::member::{GateState, PairRole, Started};
use crate::questions::grace::grace_of;
use crate::state::State;
use crate::steps::hooks::{run_hook, stop_after_hooks};

/// V3, the caller's way: a standby takes over when it is created and started again while its partner works.
pub(crate) fn take_over_if_replaced(pod: &mut State, id: &ContainerId) {
    let Some(index) = pod.containers.get(id).and_then(Container::member) else { return };
    if pod.partner(index).is_none() {
        return;
    }
    let state = &mut pod.members[index];
    let again = state.was_started;
    state.was_started = Started::Before;
    if again == Started::Before && state.duty == PairRole::Standby && refuses_switch_to(pod, index).is_none()
    {
        begin_takeover(pod, id, None);
    }
}

/// Why a pair cannot switch now.
pub(crate) fn refuses_switch_to(pod: &State, next: usize) -> Option<String> {
    let active = pod.partner(next)?;
    if pod.stop.is_some() {
        return Some("the pod is stopping".to_owned());
    }
    if pod.failure.is_some() {
        return Some("the pod has failed".to_owned());
    }
    (pod.members[active].gate != GateState::Open).then(|| format!("{} is not ready", pod.members[active]))
}

pub(crate) fn begin_takeover(pod: &mut State, id: &ContainerId, request: Option<RequestId>) {
    let Some(container) = pod.containers.get_mut(id) else { return };
    container.takeover = Some(TakeOver { request, stage: TakeoverStage::Gate });
    let Some(index) = container.member() else { return };
    let line = format!("{} is to take over", pod.members[index]);
    pod.members[index].gate = GateState::Closed;
    pod.record(id, Milestone::SwitchBegan);
    pod.emit_change(Action::Note(line));
}

/// V4: the new container is ready.
pub(crate) fn successor_is_ready(pod: &mut State, id: &ContainerId) {
    let now = pod.now;
    let Some(container) = pod.containers.get(id) else { return };
    let (Some(TakeOver { stage: TakeoverStage::Gate, .. }), Phase::Running { .. }, Some(index)) =
        (container.takeover, &container.phase, container.member())
    else {
        return;
    };
    if pod.members[index].member.migrate.is_none() {
        return retire_other(pod, id);
    }
    let until = now + grace_of(pod, id);
    set_stage(pod, id, TakeoverStage::Migrate { until });
    run_hook(pod, id, Hook::Migrate);
}

/// V4: its migrate hook has ended. A failure is logged here, not in `hooks`.
pub(crate) fn migrate_hook_ended(pod: &mut State, id: &ContainerId, outcome: &Outcome) {
    let takeover = pod.containers.get(id).and_then(|container| container.takeover);
    let Some(TakeOver { stage: TakeoverStage::Migrate { .. }, .. }) = takeover else { return };
    match outcome {
        Outcome::Failed(failure) => {
            let reason = format!("its migrate hook failed: {}", failure.message);
            takeover_failed(pod, id, &reason);
        }
        _ => retire_other(pod, id),
    }
}

/// V4: the new container is active now; its partner ends within its own grace, and is then held.
pub(crate) fn retire_other(pod: &mut State, id: &ContainerId) {
    let Some(index) = pod.containers.get(id).and_then(Container::member) else { return };
    let Some(other) = pod.partner(index) else { return };
    set_stage(pod, id, TakeoverStage::Retire);
    pod.members[index].duty = PairRole::Active;
    pod.members[other].duty = PairRole::Standby;
    pod.record(id, Milestone::Switched);
    pod.emit_change(Action::Note(format!("{} takes over from {}", pod.members[index], pod.members[other])));
    let Some(old) = pod.members[other].current.clone() else { return };
    end_to_be_held(pod, &old);
}

/// Ends a program whose container is to be held then.
pub(crate) fn end_to_be_held(pod: &mut State, id: &ContainerId) {
    let grace = grace_of(pod, id);
    let Some(container) = pod.containers.get_mut(id) else { return };
    match container.phase {
        Phase::Starting { .. } | Phase::Running { .. } if container.ending.next_exit != NextExit::Final => {
            container.ending.next_exit = NextExit::Restart;
            stop_after_hooks(pod, id, None, Some(grace));
        }
        Phase::Held(_) | Phase::BackingOff { .. } | Phase::Recreating { .. } => become_standby(pod, id),
        _ => {}
    }
}

/// V5: the takeover has failed; the active container is not touched.
pub(crate) fn takeover_failed(pod: &mut State, id: &ContainerId, reason: &str) {
    let Some(container) = pod.containers.get_mut(id) else { return };
    if container.takeover.is_none_or(|takeover| takeover.stage == TakeoverStage::Retire) {
        return;
    }
    let takeover = container.takeover.take();
    let Some(index) = container.member() else { return };
    let line = format!("{} did not take over: {reason}", pod.members[index]);
    pod.record(id, Milestone::SwitchFailed { reason: reason.to_owned() });
    pod.emit_change(Action::Tell { container: id.clone(), line: line.clone(), to: Tell::Log });
    if let Some(request) = takeover.and_then(|takeover| takeover.request) {
        pod.reply(request, Err(Refusal::precondition(line)));
    }
    end_to_be_held(pod, id);
}

/// It becomes a standby without a past: what it ran before delays no other container, and its gate is closed.
pub(crate) fn become_standby(pod: &mut State, id: &ContainerId) {
    let Some(container) = pod.containers.get_mut(id) else { return };
    container.program = Program::NeverRan;
    container.restarts = Restarts::default();
    container.probe = None;
    if let Some(index) = container.member() {
        pod.members[index].gate = GateState::Closed;
    }
    pod.mark_changed();
}

/// V4, V6: a switch is over when the old container has ended, or when the pod or the new container ends.
pub(crate) fn end_takeovers(pod: &mut State) {
    let stopping = pod.stop.is_some();
    let under_way: Vec<_> = pod
        .planned()
        .filter_map(|(_, container)| Some((container.id.clone(), container.takeover?, container.member()?)))
        .collect();
    for (id, takeover, index) in under_way {
        let old_lives =
            pod.partner(index).and_then(|other| pod.current(other)).is_some_and(Container::is_alive);
        let Some(container) = pod.containers.get_mut(&id) else { continue };
        let lost = matches!(
            container.phase,
            Phase::Created | Phase::EndingUnrun { .. } | Phase::Stopped { .. } | Phase::Removing { .. }
        );
        let over = match takeover.stage {
            TakeoverStage::Retire => stopping || lost || !old_lives,
            TakeoverStage::Gate | TakeoverStage::Migrate { .. } => stopping || lost,
        };
        if !over {
            continue;
        }
        container.takeover = None;
        pod.mark_changed();
        let Some(request) = takeover.request else { continue };
        let result = match takeover.stage {
            TakeoverStage::Retire => Ok(Reply::Ok),
            _ => {
                let text = format!("{} did not take over: it was stopped", pod.members[index]);
                Err(Refusal::precondition(text))
            }
        };
        pod.reply(request, result);
    }
}

pub(crate) fn set_stage(pod: &mut State, id: &ContainerId, stage: TakeoverStage) {
    if let Some(takeover) = pod.containers.get_mut(id).and_then(|container| container.takeover.as_mut()) {
        takeover.stage = stage;
    }
    pod.mark_changed();
}

/// V5: a migrate hook may take its container's grace.
pub(crate) fn takeover_timer(pod: &mut State, id: &ContainerId) {
    let Some(container) = pod.containers.get(id) else { return };
    if container.takeover_deadline().is_some_and(|until| pod.now >= until) {
        takeover_failed(pod, id, "its migrate hook did not end within its grace");
    }
}
