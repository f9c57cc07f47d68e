//! Which hook runs next (H1 to H4), and whether its signal still comes after it (T3).
//!
//! Owns the order of the hooks. Changes nothing: what has run is `container::hooks`.

use pod_spec::Role;

use crate::container::Container;
use crate::container::phase::Phase;
use crate::interface::operation::Hook;
use crate::questions::grace::stop_has_time_for_hooks;
use crate::questions::order::turn_has_come;
use crate::state::State;

/// The hook that a container's stop has to run next.
///
/// podshim cannot tell a main's or an init's own stop from the start of its pod's stop (T12), and its signal is
/// delivered at once: so its on-terminate hook runs before that signal at the latest.
pub(crate) fn next_hook(pod: &State, container: &Container) -> Option<Hook> {
    let member = pod.member_of(container)?.member();
    // H4: no hook runs in a container whose program never ran, or after its stop signal. One that is being started
    // is about to run: a caller whose Start was answered by a hold cannot know that the start is only now under
    // way.
    let runs = matches!(container.phase(), Phase::Running { .. } | Phase::Starting { early_exit: None, .. });
    let signalled = container.ending.is_signalled() || container.ending.is_killed();
    if !runs || signalled || !stop_has_time_for_hooks(pod, container) {
        return None;
    }
    let hooks = &container.hooks;
    // I7: what podshim ends in order to restart it is no beginning of the pod's stop.
    let may_be_pods = member.role != Role::Sidecar && !container.ending.ends_for_restart();
    let terminates = pod.is_stopping() || may_be_pods;
    if terminates && hooks.is_due(Hook::OnTerminate) && member.on_terminate.is_some() {
        return Some(Hook::OnTerminate);
    }
    // H2.
    (hooks.is_due(Hook::PreStop) && member.pre_stop.is_some()).then_some(Hook::PreStop)
}

/// Whether a sidecar's turn (K8) is over before its signal was sent: a container that needs it was started while
/// its hooks ran.
pub(crate) fn turn_has_passed(pod: &State, container: &Container) -> bool {
    let Some(index) = container.member() else { return false };
    let state = pod.member(index);
    state.role() == Role::Sidecar
        && state.pair.is_active()
        && !container.ending.ends_for_restart()
        && !container.ending.is_alone()
        && container.ending.held_signal().is_some()
        && !turn_has_come(pod, container)
}
