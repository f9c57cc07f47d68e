//! Signals to one container.

use pod_spec::Signal;

use crate::container::Container;
use crate::container::ending::NextExit;
use crate::container::exec::ExecPhase;
use crate::container::freezer::{Freezer, FreezerChange};
use crate::container::phase::{Parked, Phase};
use crate::interface::action::Action;
use crate::interface::exit::{Exit, code_of_signal};
use crate::interface::id::{ContainerId, Target};
use crate::interface::milestone::SignalCause;
use crate::interface::operation::{Operation, Reach};
use crate::state::State;
use crate::steps::finish::finish;
use crate::stop::MIN_KILL_DELAY;

/// Why a container's stop signal is sent now; `given` is a signal that a caller is sending at this moment.
pub(crate) fn cause_of_stop<T>(pod: &State, container: &Container, given: Option<T>) -> SignalCause {
    if given.is_some() {
        SignalCause::Caller
    } else if pod.budget_is_over() {
        SignalCause::Budget
    } else if container.ending.next_exit == NextExit::Restart {
        SignalCause::Restart
    } else if pod.stop.is_none() && container.ending.held_signal.is_some() {
        SignalCause::Caller
    } else {
        SignalCause::Turn
    }
}

/// Sends a signal that is meant for the program, so not before the program runs. A caller whose Start was answered
/// by a hold cannot know that the start is only now under way.
pub(crate) fn signal_init(
    pod: &mut State,
    id: &ContainerId,
    signal: Signal,
    reach: Reach,
    cause: SignalCause,
) {
    if let Some(Container { phase: Phase::Starting { signals, .. }, .. }) = pod.containers.get_mut(id)
        && signal != Signal::KILL
    {
        signals.push((signal, reach, cause));
        return pod.mark_changed();
    }
    pod.emit_change(Action::Signal { target: Target::init(id.clone()), signal, reach, cause });
}

/// Sends the signals that `signal_init` kept back.
pub(crate) fn send_parked(pod: &mut State, id: &ContainerId, signals: Vec<Parked>) {
    for (signal, reach, cause) in signals {
        signal_init(pod, id, signal, reach, cause);
    }
}

pub(crate) fn thaw(pod: &mut State, id: &ContainerId) {
    let Some(container) = pod.containers.get_mut(id) else { return };
    if container.freezer == Freezer::Paused {
        let op = pod.run(id, Operation::Resume);
        if let Some(container) = pod.containers.get_mut(id) {
            container.freezer = Freezer::Changing(op, None, FreezerChange::Resume);
        }
    }
}

/// K17 for a pause that was under way when the signal was sent.
pub(crate) fn thaw_if_ending(pod: &mut State, id: &ContainerId) {
    let Some(container) = pod.containers.get(id) else { return };
    if container.ending.killed || (container.ending.term_at.is_some() && pod.budget_is_over()) {
        thaw(pod, id);
    }
}

/// Sends SIGKILL, and thaws the container: a frozen one acts on it only then (K17).
pub(crate) fn kill_now(pod: &mut State, id: &ContainerId, reach: Reach, cause: SignalCause) {
    let Some(container) = pod.containers.get_mut(id) else { return };
    container.ending.next_exit = NextExit::Final;
    container.ending.killed = true;
    container.hooks.stop_waiting();
    container.probe = None;
    let code = code_of_signal(Signal::KILL.number());
    match &mut container.phase {
        Phase::BackingOff { last, .. } => {
            let at = last.at;
            return finish(pod, id, Exit { code, at });
        }
        Phase::Recreating { last, .. } => last.code = code,
        _ => {}
    }
    if container.has_process() {
        let target = Target::init(id.clone());
        pod.emit_change(Action::Signal { target, signal: Signal::KILL, reach, cause });
        thaw(pod, id);
    }
    pod.mark_changed();
}

/// R6: kills the execs that a container's own exit waits for. Each through its own process, which works even where
/// the cgroup as a whole could not be emptied.
pub(crate) fn kill_execs(pod: &mut State, id: &ContainerId) {
    let Some(container) = pod.containers.get(id) else { return };
    let running = container.execs.iter().filter(|(_, record)| matches!(record.phase, ExecPhase::Running));
    let targets: Vec<_> =
        running.map(|(exec, _)| Target { container: id.clone(), exec: Some(exec.clone()) }).collect();
    for target in targets {
        let (signal, reach, cause) = (Signal::KILL, Reach::Process, SignalCause::NotRun);
        pod.emit_change(Action::Signal { target, signal, reach, cause });
    }
}

/// Delivers a stop signal: the given one, the held one, or the container's own. The container's next exit is final,
/// unless podshim ends it in order to restart it.
pub(crate) fn deliver_stop(pod: &mut State, id: &ContainerId, given: Option<(Signal, Reach)>) {
    let now = pod.now;
    let Some(container) = pod.containers.get(id) else { return };
    let cause = cause_of_stop(pod, container, given);
    let Some(container) = pod.containers.get_mut(id) else { return };
    let waited = container.hooks.stop_waiting();
    let member = container.member().map(|index| &pod.members[index].member);
    let own = member.and_then(|member| member.stop_signal).unwrap_or(Signal::TERM);
    let (signal, reach) = given.or(container.ending.held_signal.take()).unwrap_or((own, Reach::Process));
    container.ending.term_at.get_or_insert(now);
    // H8: a gate that fails from now on is no reason to restart it.
    container.probe = None;
    if container.ending.next_exit == NextExit::Unasked {
        container.ending.next_exit = NextExit::Final;
    }
    // T8: inside the budget, never beyond it. It began with the hooks, which leave at least the floor of it (F9).
    let grace = waited.map_or(member.and_then(|member| member.grace), |waited| waited.grace);
    if let Some(grace) = grace {
        let begun = waited.map_or(now, |waited| waited.since);
        container.ending.kill_by((begun + grace).max(now + grace.min(MIN_KILL_DELAY)));
    }
    if container.has_process() {
        signal_init(pod, id, signal, reach, cause);
    }
    pod.mark_changed();
}
