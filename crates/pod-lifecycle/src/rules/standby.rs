//! Standby sidecars (V-rules): pairs of an active and a held container, and the switch between them.
//!
//! Owns which one of a pair is active, when its partner takes over, and what happens when a switch fails. A pair's
//! gate is open when the active one's is, and both have the same links. Never decides what waits for a pair, and which of it a
//! rule means: `questions::order` does. Changes: container, ending, takeover, gate, pair.

use crate::container::Container;
use crate::container::phase::Phase;
use crate::container::takeover::TakeoverStage;
use crate::interface::action::{Action, LineTarget, Reply};
use crate::interface::id::{ContainerId, RequestId};
use crate::interface::milestone::Milestone;
use crate::interface::operation::Hook;
use crate::interface::outcome::{Outcome, Refusal};
use crate::interface::time::PodTime;
use crate::member::pair::CallerStart;
use crate::questions::grace::grace_of;
use crate::state::State;
use crate::steps::hooks::{run_hook, stop_after_hooks};

/// V3, the caller's way: a standby takes over when it is created and started again while its partner works.
pub(crate) fn take_over_if_replaced(pod: &mut State, id: &ContainerId) {
    let Some(index) = pod.container(id).and_then(Container::member) else { return };
    if pod.partner(index).is_none() {
        return;
    }
    let before = pod.member_mut(index).pair.caller_starts();
    if before == CallerStart::Before
        && !pod.member(index).pair.is_active()
        && refuses_switch_to(pod, index).is_none()
    {
        begin_takeover(pod, id, None);
    }
}

/// Why a pair cannot switch now.
pub(crate) fn refuses_switch_to(pod: &State, next: usize) -> Option<String> {
    let active = pod.partner(next)?;
    if pod.is_stopping() {
        return Some("the pod is stopping".to_owned());
    }
    if pod.failure().is_some() {
        return Some("the pod has failed".to_owned());
    }
    (!pod.member(active).gate.is_open()).then(|| format!("{} is not ready", pod.member(active)))
}

pub(crate) fn begin_takeover(pod: &mut State, id: &ContainerId, request: Option<RequestId>) {
    let Some(container) = pod.container_mut(id) else { return };
    container.takeover.begin(request);
    let Some(index) = container.member() else { return };
    let line = format!("{} is to take over", pod.member(index));
    pod.member_mut(index).gate.close();
    pod.record(id, Milestone::SwitchBegan);
    pod.note(line);
}

/// V4: the new container is ready.
pub(crate) fn successor_is_ready(pod: &mut State, id: &ContainerId) {
    let now = pod.now();
    let Some(container) = pod.container(id) else { return };
    let Some(index) = container.member() else { return };
    if container.takeover.stage() != Some(TakeoverStage::Gate) || !container.runs() {
        return;
    }
    if pod.member(index).member().migrate.is_none() {
        return retire_partner(pod, id);
    }
    let until = now + grace_of(pod, id);
    if let Some(container) = pod.container_mut(id) {
        container.takeover.migrate(until);
    }
    run_hook(pod, id, Hook::Migrate);
}

/// V4: its migrate hook has ended. A failure is logged here, not in `hooks`.
pub(crate) fn migrate_hook_ended(pod: &mut State, id: &ContainerId, outcome: &Outcome) {
    let stage = pod.container(id).and_then(|container| container.takeover.stage());
    let Some(TakeoverStage::Migrate { .. }) = stage else { return };
    match outcome {
        Outcome::Failed(failure) => {
            let reason = format!("its migrate hook failed: {}", failure.message);
            takeover_failed(pod, id, &reason);
        }
        _ => retire_partner(pod, id),
    }
}

/// V4: the new container is active now; its partner ends within its own grace, and is then held.
fn retire_partner(pod: &mut State, id: &ContainerId) {
    let Some(index) = pod.container(id).and_then(Container::member) else { return };
    let Some(other) = pod.partner(index) else { return };
    if let Some(container) = pod.container_mut(id) {
        container.takeover.retire_partner();
    }
    pod.member_mut(index).pair.take_over();
    pod.member_mut(other).pair.retire();
    pod.record(id, Milestone::Switched);
    pod.note(format!("{} takes over from {}", pod.member(index), pod.member(other)));
    let Some(old) = pod.member(other).current().cloned() else { return };
    end_to_be_held(pod, &old);
}

/// Ends a program whose container is to be held then.
fn end_to_be_held(pod: &mut State, id: &ContainerId) {
    let (now, grace) = (pod.now(), grace_of(pod, id));
    let Some(container) = pod.container_mut(id) else { return };
    match container.phase() {
        Phase::Starting { .. } | Phase::Running { .. } if !container.ending.is_final() => {
            container.ending.end_for_restart();
            // K15: in a stop that was taken back, for example.
            if container.ending.is_signalled() {
                container.ending.kill_by(now + grace);
                return pod.mark_changed();
            }
            stop_after_hooks(pod, id, None, Some(grace));
        }
        Phase::Held(_) | Phase::BackingOff { .. } | Phase::Recreating { .. } => become_standby(pod, id),
        _ => {}
    }
}

/// V5: the takeover has failed; the active container is not touched.
pub(crate) fn takeover_failed(pod: &mut State, id: &ContainerId, reason: &str) {
    let Some(container) = pod.container_mut(id) else { return };
    if !container.takeover.may_fail() {
        return;
    }
    let request = container.takeover.end();
    let Some(index) = container.member() else { return };
    let line = format!("{} did not take over: {reason}", pod.member(index));
    pod.record(id, Milestone::SwitchFailed { reason: reason.to_owned() });
    pod.emit_change(Action::WriteLine { container: id.clone(), line: line.clone(), to: LineTarget::Log });
    if let Some(request) = request {
        pod.reply(request, Err(Refusal::precondition(line)));
    }
    end_to_be_held(pod, id);
}

/// It becomes a standby without a past: what it ran before delays no other container, and its gate is closed.
pub(crate) fn become_standby(pod: &mut State, id: &ContainerId) {
    let Some(container) = pod.container_mut(id) else { return };
    container.become_standby();
    if let Some(index) = container.member() {
        pod.member_mut(index).gate.close();
    }
    pod.mark_changed();
}

/// V4, V6: a switch is over when the old container has ended, or when the pod or the new container ends.
pub(crate) fn end_takeovers(pod: &mut State) {
    let stopping = pod.is_stopping();
    let under_way: Vec<_> = pod
        .planned()
        .filter_map(|(_, container)| {
            Some((container.id().clone(), container.takeover.stage()?, container.member()?))
        })
        .collect();
    for (id, stage, index) in under_way {
        let old_lives =
            pod.partner(index).and_then(|other| pod.current(other)).is_some_and(Container::is_unfinished);
        let Some(container) = pod.container_mut(&id) else { continue };
        let lost = matches!(
            container.phase(),
            Phase::Created | Phase::EndingUnrun { .. } | Phase::Stopped { .. } | Phase::Removing { .. }
        );
        let over = match stage {
            TakeoverStage::Retire => stopping || lost || !old_lives,
            TakeoverStage::Gate | TakeoverStage::Migrate { .. } => stopping || lost,
        };
        if !over {
            continue;
        }
        let request = container.takeover.end();
        pod.mark_changed();
        let Some(request) = request else { continue };
        let result = match stage {
            TakeoverStage::Retire => Ok(Reply::Ok),
            _ => {
                let text = format!("{} did not take over: it was stopped", pod.member(index));
                Err(Refusal::precondition(text))
            }
        };
        pod.reply(request, result);
    }
}

/// V5: a migrate hook may take its container's grace.
pub(crate) fn takeover_due(_: &State, container: &Container) -> Option<PodTime> {
    container.takeover.deadline()
}

/// It has taken longer.
pub(crate) fn takeover_timed_out(pod: &mut State, id: &ContainerId) {
    takeover_failed(pod, id, "its migrate hook did not end within its grace");
}
