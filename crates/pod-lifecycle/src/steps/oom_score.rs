//! Which process the kernel kills first when memory is short: no sidecar before the mains that need it (N8).
//!
//! Owns when podshim corrects that. A container's own value comes with its spec, and callers create containers in any
//! order. Never raises a value.

use pod_spec::{OomScore, Role};

use crate::container::Container;
use crate::interface::action::Action;
use crate::interface::id::ContainerId;
use crate::state::State;

/// N8: a container has a new process, with the value of its spec. podshim corrects a sidecar's value before its program
/// runs, and all sidecars' values when a main is created.
pub(crate) fn limit_oom_scores(pod: &mut State, id: &ContainerId) {
    if pod.settings().is_none_or(|settings| settings.oom_score != OomScore::Protect) {
        return;
    }
    let is_main = |container: &Container| pod.role(container) == Some(Role::Main);
    let mains = pod.planned().filter(|(_, container)| is_main(container) && !container.is_final());
    let Some(highest) = mains.filter_map(|(_, container)| container.spec().oom_score_adj).min() else {
        return;
    };
    let new_main = pod.container(id).is_some_and(is_main);
    let above = pod.planned_where(|state, container| {
        state.role() == Role::Sidecar
            && container.has_process()
            && (new_main || container.id() == id)
            && container.spec().oom_score_adj.is_some_and(|own| own > highest)
    });
    for container in above {
        pod.emit_change(Action::LimitOomScore { container, highest });
    }
}
