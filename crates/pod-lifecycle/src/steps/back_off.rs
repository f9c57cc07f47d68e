//! A restart that is due later (R4).

use crate::container::phase::Phase;
use crate::interface::action::Action;
use crate::interface::exit::Exit;
use crate::interface::id::ContainerId;
use crate::interface::milestone::Milestone;
use crate::state::State;

pub(crate) fn back_off(pod: &mut State, id: &ContainerId, last: Exit) {
    let now = pod.now;
    let Some(container) = pod.containers.get_mut(id) else { return };
    let own = container.member().and_then(|index| pod.members[index].member.restart);
    let node = pod.plan.as_ref().map(|plan| plan.defaults.backoff).unwrap_or_default();
    let delay = container.restarts.next_delay(&own.map_or(node, |restart| restart.backoff));
    container.phase = Phase::BackingOff { last, until: now + delay };
    let name = container.spec.name.clone();
    pod.record(id, Milestone::RestartDue { delay });
    pod.emit_change(Action::Note(format!("{name:?} exited with {}, restart in {delay:?}", last.code)));
}

pub(crate) fn restart_later(pod: &mut State, id: &ContainerId, last: Exit) {
    if let Some(container) = pod.containers.get_mut(id) {
        container.restarts.counted();
    }
    back_off(pod, id, last);
}
