//! A stop signal that comes after the container's hooks (H1 to H3, K15).
//!
//! Owns what happens between the beginning of one container's end and its signal. Never decides which hook is next:
//! `questions::hooks` does. Changes: container, ending, hooks.

use std::time::Duration;

use pod_spec::Signal;

use crate::container::Container;
use crate::interface::id::ContainerId;
use crate::interface::operation::{Hook, Operation, Reach};
use crate::questions::grace::own_grace;
use crate::questions::hooks::{next_hook, turn_has_passed};
use crate::state::State;
use crate::steps::signal::deliver_stop;

/// Sends a container a stop signal (the given one, the held one, or its own) after its hooks. `grace` bounds all of
/// it (U4); without it the container's own grace does (T8).
///
/// A second stop signal meanwhile changes nothing: podshim delivers the first one (K15).
pub(crate) fn stop_after_hooks(
    pod: &mut State,
    id: &ContainerId,
    given: Option<(Signal, Reach)>,
    grace: Option<Duration>,
) {
    let now = pod.now();
    let Some(container) = pod.container(id) else { return };
    if container.hooks.has_waiting_stop() {
        return;
    }
    if !container.hooks.is_running() && next_hook(pod, container).is_none() {
        deliver_stop(pod, id, given);
        if let (Some(grace), Some(container)) = (grace, pod.container_mut(id)) {
            container.ending.kill_by(now + grace);
        }
        return;
    }
    let own = own_grace(pod, id);
    let Some(container) = pod.container_mut(id) else { return };
    container.hooks.wait(now, grace.or(own));
    container.ending.wait_for_hooks(given);
    // As with a delivered signal, its end has begun.
    container.stop_probing();
    pod.mark_changed();
    go_on_with_hooks(pod, id);
}

/// Runs the next hook of a stop that has begun, or sends its signal.
pub(crate) fn go_on_with_hooks(pod: &mut State, id: &ContainerId) {
    let Some(container) = pod.container(id) else { return };
    if container.hooks.is_running() || !container.hooks.has_waiting_stop() {
        return;
    }
    match next_hook(pod, container) {
        Some(_) if !container.runs() => {}
        _ if turn_has_passed(pod, container) => hold_again(pod, id),
        Some(hook) => run_hook(pod, id, hook),
        None => deliver_stop(pod, id, None),
    }
}

/// T8, T3: the signal waits for its hooks no longer. If its turn has passed it waits for the next one.
pub(crate) fn signal_now_or_in_turn(pod: &mut State, id: &ContainerId) {
    if pod.container(id).is_some_and(|container| turn_has_passed(pod, container)) {
        hold_again(pod, id);
    } else {
        deliver_stop(pod, id, None);
    }
}

/// T3: the signal waits for the next turn; the hooks have already run. U4, V4: an end in order to be restarted goes on.
pub(crate) fn hold_again(pod: &mut State, id: &ContainerId) {
    let Some(container) = pod.container_mut(id) else { return };
    container.ending.wait_for_next_turn();
    let goes_on = container.ending.ends_for_restart();
    if !goes_on {
        container.hooks.stop_waiting();
    }
    pod.mark_changed();
    if goes_on {
        go_on_with_hooks(pod, id);
    }
}

/// Runs a hook of a container.
pub(crate) fn run_hook(pod: &mut State, id: &ContainerId, hook: Hook) {
    let Some(index) = pod.container(id).and_then(Container::member) else { return };
    let member = pod.member(index).member();
    let command = match hook {
        Hook::OnTerminate => member.on_terminate.clone(),
        Hook::PreStop => member.pre_stop.clone(),
        Hook::Migrate => member.migrate.clone(),
    };
    let op = pod.run(id, Operation::RunHook { hook, command: command.unwrap_or_default() });
    if let Some(container) = pod.container_mut(id) {
        container.hooks.begin(op, hook);
    }
}
