//! Signals to one container: when one is really sent, and what goes with it.
//!
//! Owns that a signal waits for the end of a start, that a container is thawed for the signal that ends it (K17), and when a caller's
//! SIGKILL that comes early is sent (K9, K10). Never decides whether a container gets a signal at all: that is decided above.
//! Changes: container, ending, hooks, freezer.

use std::time::Duration;

use pod_spec::Signal;

use crate::container::Container;
use crate::container::freezer::FreezerChange;
use crate::container::phase::{DeferredSignal, Phase};
use crate::interface::action::Action;
use crate::interface::exit::{Exit, KILLED};
use crate::interface::id::{ContainerId, Target};
use crate::interface::milestone::SignalCause;
use crate::interface::operation::{Operation, Reach};
use crate::questions::grace::{last_signals, own_grace};
use crate::questions::pod_restart::is_renewed;
use crate::state::State;
use crate::steps::finish::finish;
use crate::stop::MIN_KILL_DELAY;

/// K9, K10: the time a sidecar gets between its stop signal and a caller's SIGKILL. crictl gives up 2 s after its kill
/// (F5).
const KILL_AFTER_TERM: Duration = Duration::from_millis(1500);

/// Sends a signal that is meant for the program, so not before the program runs. A caller whose Start was answered
/// by a hold cannot know that the start is only now under way.
pub(crate) fn signal_init(
    pod: &mut State,
    id: &ContainerId,
    signal: Signal,
    reach: Reach,
    cause: SignalCause,
) {
    if signal != Signal::KILL
        && let Some(container) = pod.container_mut(id)
        && container.park_signal(signal, reach, cause)
    {
        return pod.mark_changed();
    }
    pod.emit_change(Action::Signal { target: Target::init(id.clone()), signal, reach, cause });
}

/// Sends the signals that `signal_init` kept back.
pub(crate) fn send_deferred(pod: &mut State, id: &ContainerId, signals: Vec<DeferredSignal>) {
    for (signal, reach, cause) in signals {
        signal_init(pod, id, signal, reach, cause);
    }
}

/// Delivers a stop signal: the given one, the held one, or the container's own (K18). The container's next exit is final,
/// unless podshim ends it in order to restart it.
pub(crate) fn deliver_stop(pod: &mut State, id: &ContainerId, given: Option<(Signal, Reach)>) {
    let now = pod.now();
    let Some(container) = pod.container(id) else { return };
    let cause = cause_of_stop(pod, container, given);
    let own_signal = pod.member_of(container).and_then(|state| state.member().stop_signal);
    let own_grace = own_grace(pod, id);
    let Some(container) = pod.container_mut(id) else { return };
    let waited = container.hooks.stop_waiting();
    let own_signal = (own_signal.unwrap_or(Signal::TERM), Reach::Process);
    let (signal, reach) = container.ending.deliver(given, now).unwrap_or(own_signal);
    // H8: a gate that fails from now on is no reason to restart it.
    container.stop_probing();
    // T8: inside the budget, never beyond it. It began with the hooks, which leave at least the floor of it (F9).
    if let Some(grace) = waited.map_or(own_grace, |waited| waited.grace) {
        let begun = waited.map_or(now, |waited| waited.since);
        container.ending.kill_by((begun + grace).max(now + grace.min(MIN_KILL_DELAY)));
    }
    if container.has_process() {
        signal_init(pod, id, signal, reach, cause);
    }
    pod.mark_changed();
}

/// Why a container's stop signal is sent now; `given` is a signal that a caller is sending at this moment.
fn cause_of_stop<T>(pod: &State, container: &Container, given: Option<T>) -> SignalCause {
    if given.is_some() {
        SignalCause::Caller
    } else if pod.budget_is_over() || last_signals(pod, container).is_some_and(|(stop, _)| pod.now() >= stop)
    {
        SignalCause::Budget
    } else if container.ending.ends_for_restart() {
        SignalCause::Restart
    } else if !pod.is_stopping() && container.ending.held_signal().is_some() {
        SignalCause::Caller
    } else {
        SignalCause::Turn
    }
}

/// Ends a container with SIGKILL.
pub(crate) fn kill_now(pod: &mut State, id: &ContainerId, reach: Reach, cause: SignalCause) {
    if let Some(container) = pod.container_mut(id) {
        container.ending.end_for_good();
    }
    kill_process(pod, id, reach, cause);
}

/// K9, K10, T7: sends the stop signal at once if it is still due, and SIGKILL 1.5 s after it.
pub(crate) fn kill_after_term(pod: &mut State, id: &ContainerId) {
    let now = pod.now();
    let Some(container) = pod.container(id) else { return };
    // Again, in case a thaw has failed (K17).
    if container.ending.is_killed() {
        return kill_now(pod, id, Reach::All, SignalCause::Caller);
    }
    let has_exited = container.exited_during_start();
    if !container.ending.is_signalled() && !has_exited {
        deliver_stop(pod, id, None);
    }
    let Some(container) = pod.container_mut(id) else { return };
    container.ending.end_for_good();
    // T10: only the OCI runtime's call goes on, which no signal ends.
    if has_exited {
        return container.ending.kill();
    }
    let signalled_at = container.ending.signalled_at().unwrap_or(now);
    container.ending.put_off_kill(signalled_at + KILL_AFTER_TERM);
}

/// Ends a container with SIGKILL, also between two runs of its program. What the next exit means stays.
pub(crate) fn kill_process(pod: &mut State, id: &ContainerId, reach: Reach, cause: SignalCause) {
    let Some(container) = pod.container_mut(id) else { return };
    // R5: between two processes SIGKILL ends nothing, and the last code stays, unless a caller sent it.
    let code = (cause == SignalCause::Caller).then_some(KILLED);
    container.kill(code);
    if let Phase::BackingOff { last, .. } = *container.phase() {
        // R14: it is held for the pod's restart instead.
        if pod.container(id).is_some_and(|container| is_renewed(pod, container)) {
            return pod.mark_changed();
        }
        return finish(pod, id, Exit { code: code.unwrap_or(last.code), ..last });
    }
    if container.has_process() {
        send_kill(pod, id, reach, cause);
    }
    pod.mark_changed();
}

/// Sends SIGKILL to a process that exists, and thaws its container: a frozen one acts on it only then (K17).
pub(crate) fn send_kill(pod: &mut State, id: &ContainerId, reach: Reach, cause: SignalCause) {
    let target = Target::init(id.clone());
    pod.emit_change(Action::Signal { target, signal: Signal::KILL, reach, cause });
    thaw(pod, id);
}

/// R6: kills the execs that a container's own exit waits for. Each through its own process, which works even where
/// the cgroup as a whole could not be emptied.
pub(crate) fn kill_execs(pod: &mut State, id: &ContainerId) {
    let Some(container) = pod.container(id) else { return };
    let running = container.execs().filter(|(_, exec)| exec.runs());
    let targets: Vec<_> =
        running.map(|(exec, _)| Target { container: id.clone(), exec: Some(exec.clone()) }).collect();
    for target in targets {
        let (signal, reach, cause) = (Signal::KILL, Reach::Process, SignalCause::NotRun);
        pod.emit_change(Action::Signal { target, signal, reach, cause });
    }
}

/// Thaws a container, for a signal that it must act on (K17). Other processes freeze it too, and groups inside of its own:
/// only the kernel knows. The OCI runtime resumes what it has paused besides: it may have more to do for that.
pub(crate) fn thaw(pod: &mut State, id: &ContainerId) {
    if pod.container(id).is_some_and(|container| container.freezer.is_paused()) {
        let op = pod.run(id, Operation::Resume);
        if let Some(container) = pod.container_mut(id) {
            container.freezer.begin(op, None, FreezerChange::Resume);
        }
    }
    // Last: for a container that runs, a runtime refuses to resume.
    pod.emit_change(Action::Thaw { container: id.clone() });
}

/// K17 for a pause that was under way when the signal was sent.
pub(crate) fn thaw_if_ending(pod: &mut State, id: &ContainerId) {
    let Some(container) = pod.container(id) else { return };
    if container.ending.is_killed() || (container.ending.is_signalled() && pod.budget_is_over()) {
        thaw(pod, id);
    }
}
