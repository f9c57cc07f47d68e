//! The signal table: what Kill(container, signal) means (K-rules).
//!
//! Owns the decision between delivering, holding (T3) and ending, notes in the member that a caller asks for its end, and begins
//! the stops that a signal begins. Never decides when a held signal's turn comes, and never delivers one then: `rules::turns`
//! does. Each branch answers the request at once: a caller's grace period runs from the answer (CONTRACT §3).
//! Changes: container, ending, callers stop, member.

use pod_spec::{Role, Signal, ZeroGrace};

use crate::container::Container;
use crate::container::phase::{ExitedFrom, Part, Phase};
use crate::interface::action::{Action, Reply};
use crate::interface::exit::{Exit, code_of_signal};
use crate::interface::id::{ContainerId, RequestId, Target};
use crate::interface::milestone::{Milestone, SignalCause};
use crate::interface::operation::Reach;
use crate::interface::outcome::Refusal;
use crate::interface::spec::Caller;
use crate::interface::stop_cause::{SandboxEnd, StopCause};
use crate::member::FirstAsk;
use crate::member::evidence::{Ask, Seen};
use crate::questions::evidence::stop_was_asked;
use crate::questions::grace::grace_without_caller;
use crate::questions::pod_restart::is_withheld;
use crate::rules::callers_stop::detect_callers_stop;
use crate::rules::sandbox::signal_sandbox;
use crate::rules::stop::{begin_stop, hurry_stop};
use crate::state::State;
use crate::steps::finish::finish;
use crate::steps::hooks::stop_after_hooks;
use crate::steps::signal::{kill_after_term, kill_now, send_kill, signal_init};
use crate::steps::unrun::end_without_running;
use crate::stop::Stop;

/// Whether HUP is a reload where the plan does not name it as the stop signal (K6). A shim does not see an image's
/// STOPSIGNAL: under CRI that may be HUP, unless the plan names another signal. And a program that never ran reloads
/// nothing.
fn is_reload(container: &Container, named: Option<Signal>) -> bool {
    container.spec().caller != Caller::Cri || (named.is_some() && !container.never_ran())
}

/// What a signal means for a container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Meaning {
    Stop,
    Kill,
    /// Any signal that the program just gets: reload, window size, user signals.
    Other,
}

/// A caller sends a container a signal.
pub(crate) fn kill_container(
    pod: &mut State,
    request: RequestId,
    id: ContainerId,
    signal: Signal,
    reach: Reach,
) {
    let Some(container) = pod.container(&id) else {
        return pod.reply_not_found(request, &id);
    };
    match *container.phase() {
        Phase::Creating { .. } | Phase::Prepared | Phase::Restoring { .. } => {
            let text = format!("cannot signal container {id}: it {}", container.phase().in_words());
            return pod.reply(request, Err(Refusal::precondition(text)));
        }
        // S1, as with `runc kill --all`: no process is left to signal.
        Phase::Stopped { .. } | Phase::Removing { .. }
            if reach == Reach::All && container.part() == Part::Passthrough =>
        {
            return pod.reply(request, Ok(Reply::Ok));
        }
        // CONTRACT §9: on NotFound containerd's WithProcessKill takes the answer from Wait.
        Phase::Stopped { .. } | Phase::Removing { .. } => {
            return pod.reply_finished(request, &Target::init(id));
        }
        // A container that is restarted or recreated (R1, R7, R14) is still there for its caller.
        Phase::Draining { exit, was, .. }
            if was != ExitedFrom::Held
                && !(container.is_unfinished() && is_withheld(pod, container, exit.code)) =>
        {
            return pod.reply_finished(request, &Target::init(id));
        }
        _ => {}
    }
    let meaning = meaning_of(pod, container, signal);
    let result = match (container.part(), meaning) {
        (Part::Sandbox, Meaning::Stop | Meaning::Kill)
            if pod.stop().is_some_and(Stop::has_signalled_sandbox) =>
        {
            signal_sandbox(pod, &id, signal, reach, SignalCause::Caller);
            Ok(Reply::Ok)
        }
        (Part::Sandbox, Meaning::Stop | Meaning::Kill) if pod.has_plan() => {
            begin_stop(pod, StopCause::Sandbox(SandboxEnd::Killed(signal)));
            Ok(Reply::Ok)
        }
        // K2. K17 holds for every frozen container.
        (Part::Sandbox | Part::Passthrough, Meaning::Kill) => {
            kill_now(pod, &id, reach, SignalCause::Caller);
            Ok(Reply::Ok)
        }
        (Part::Sandbox | Part::Passthrough, _) => {
            signal_init(pod, &id, signal, reach, SignalCause::Caller);
            Ok(Reply::Ok)
        }
        (Part::Member(_), meaning) => kill_member(pod, &id, signal, reach, meaning),
    };
    pod.reply(request, result);
}

/// Whether a caller's signal is meant to end a container.
pub(crate) fn is_meant_to_end(pod: &State, container: &Container, signal: Signal) -> bool {
    meaning_of(pod, container, signal) != Meaning::Other
}

/// K7: whether a signal is a stop signal.
fn meaning_of(pod: &State, container: &Container, signal: Signal) -> Meaning {
    let named = container.member().and_then(|index| pod.member(index).member().stop_signal);
    match signal {
        Signal::KILL => Meaning::Kill,
        signal if named == Some(signal) => Meaning::Stop,
        Signal::HUP if is_reload(container, named) => Meaning::Other,
        // Under CRI every other signal is the image's STOPSIGNAL.
        _ if container.spec().caller == Caller::Cri => Meaning::Stop,
        Signal::TERM | Signal::INT | Signal::QUIT | Signal::PWR | Signal::RTMIN_PLUS_3 => Meaning::Stop,
        _ => Meaning::Other,
    }
}

fn kill_member(
    pod: &mut State,
    id: &ContainerId,
    signal: Signal,
    reach: Reach,
    meaning: Meaning,
) -> Result<Reply, Refusal> {
    let stop_was_asked = stop_was_asked(pod);
    let ask = match meaning {
        Meaning::Kill => Ask::Kill,
        Meaning::Stop => Ask::Signal,
        Meaning::Other => return pass_on(pod, id, signal, reach),
    };
    let Some(container) = pod.container(id) else { return Ok(Reply::Ok) };
    // A caller whose Start was not answered kills the container: containerd does, when its own caller is gone.
    let undone = ask == Ask::Kill
        && match container.phase() {
            Phase::Created => true,
            Phase::Starting { announce, .. } => !announce.is_empty(),
            _ => false,
        };
    let between_runs = matches!(container.phase(), Phase::BackingOff { .. } | Phase::Recreating { .. });
    // A caller kills a container that could not be started in order to delete it: that is no stop.
    if let (Some(index), None, false) = (container.member(), container.start_error(), undone) {
        note_ask(pod, id, index, ask);
    }
    // R2, R5: after an earlier stop this one may show that the caller stops the pod, unless it is one of K11's `order`.
    let begins_order = meaning == Meaning::Kill && !stop_was_asked && orders_zero_grace(pod);
    if between_runs && !begins_order {
        detect_callers_stop(pod);
    }
    let ends_between_runs =
        meaning == Meaning::Stop && !pod.is_stopping() && pod.role_of(id) != Some(Role::Sidecar);
    let Some(container) = pod.container_mut(id) else { return Ok(Reply::Ok) };
    if undone {
        container.ending.undo();
    }
    let code = code_of_signal(signal.number());
    let never_ran = container.never_ran();
    match *container.phase() {
        // K4.
        Phase::Hidden { exit } | Phase::CompletedAgain { exit } => finish(pod, id, exit),
        // Trap 21: a created container must die, else its sandbox cannot end.
        Phase::Created => {
            container.ending.end_for_good();
            match meaning {
                Meaning::Kill => send_kill(pod, id, reach, SignalCause::Caller),
                _ => {
                    let (target, cause) = (Target::init(id.clone()), SignalCause::Caller);
                    pod.emit_change(Action::Signal { target, signal, reach, cause });
                }
            }
        }
        // K3.
        Phase::Held(_) => end_without_running(pod, id, code, None),
        Phase::BackingOff { last, .. } if never_ran => finish(pod, id, Exit { code, at: last.at }),
        Phase::Recreating { .. } | Phase::Draining { was: ExitedFrom::Held, .. } if never_ran => {
            container.end_instead_of_running(code);
        }
        Phase::EndingUnrun { .. } => container.ending.end_for_good(),
        // R7: no process runs, so it has ended at once. A sidecar may be needed yet (T16).
        Phase::BackingOff { last, .. } if ends_between_runs => finish(pod, id, last),
        Phase::Recreating { .. } if ends_between_runs => container.ending.end_for_good(),
        _ => match (pod.role_of(id), meaning) {
            (_, Meaning::Kill) if !undone && begin_or_join_zero_grace_stop(pod, stop_was_asked) => {
                if let Some(container) = pod.container_mut(id) {
                    container.ending.kill_in_stop();
                }
            }
            (Some(Role::Sidecar), Meaning::Kill) if !pod.is_stopping() && !stop_was_asked => {
                kill_unordered(pod, id)
            }
            (Some(Role::Sidecar), Meaning::Kill) => kill_after_term(pod, id),
            (Some(Role::Sidecar), _) => hold_signal(pod, id, signal, reach),
            // K12, K14: with the reach that the caller asked for.
            (_, Meaning::Kill) => kill_now(pod, id, reach, SignalCause::Caller),
            _ => {
                stop_after_hooks(pod, id, Some((signal, reach)), None);
                // I7: the caller's stop overrides a retry of the group.
                if let Some(container) = pod.container_mut(id) {
                    container.ending.end_for_good();
                }
            }
        },
    }
    Ok(Reply::Ok)
}

/// A caller asks for the end of a member's newest container (T12, T16).
fn note_ask(pod: &mut State, id: &ContainerId, index: usize, ask: Ask) {
    let now = pod.now();
    let Some(container) = pod.container_mut(id) else { return };
    container.ending.ask(now);
    let seen = match container.phase() {
        Phase::Created | Phase::CompletedAgain { .. } => Seen::Created,
        _ => Seen::Running,
    };
    if pod.member_mut(index).ask(ask, seen) == FirstAsk::No {
        return;
    }
    let until = pod.now() + pod.lone_stop_window();
    pod.callers_stop.ask(index, until);
    if ask == Ask::Signal {
        count_grace_with_caller(pod, id, index);
    }
}

/// K11: whether a SIGKILL that no stop announced begins a stop of the pod.
fn orders_zero_grace(pod: &State) -> bool {
    pod.settings().is_some_and(|settings| settings.zero_grace == ZeroGrace::Order)
}

/// Takes a caller's SIGKILL of a running member as the start of such a stop, or as a part of the one under way, in
/// which every container gets SIGKILL at its own time. `false`: the SIGKILL has its usual meaning.
fn begin_or_join_zero_grace_stop(pod: &mut State, stop_was_asked: bool) -> bool {
    let is_ordered = orders_zero_grace(pod);
    match pod.stop() {
        Some(stop) if stop.is_zero_grace() => stop.until().is_some(),
        // T9: a stop of podshim's own has less time from now on.
        Some(stop) if is_ordered && !stop_was_asked && stop.is_ours() && stop.until().is_some() => {
            hurry_stop(pod);
            true
        }
        None if is_ordered && !stop_was_asked => {
            begin_stop(pod, StopCause::ZeroGrace);
            true
        }
        _ => false,
    }
}

/// T17: if the pod's stop has already signalled a sidecar, its caller counts its time from the caller's own stop
/// signal on.
fn count_grace_with_caller(pod: &mut State, id: &ContainerId, index: usize) {
    let by_caller = pod.stop().is_some_and(|stop| !stop.is_ours());
    if !by_caller || pod.member(index).member().grace.is_some() {
        return;
    }
    let kill_at = grace_without_caller(pod, id).map(|grace| pod.now() + grace);
    if let Some(container) = pod.container_mut(id) {
        container.ending.count_with_caller(kill_at);
    }
}

/// K6, and K5 for signals that are no stop signals.
fn pass_on(pod: &mut State, id: &ContainerId, signal: Signal, reach: Reach) -> Result<Reply, Refusal> {
    let Some(container) = pod.container(id) else { return Ok(Reply::Ok) };
    let phase = container.phase();
    if !matches!(phase, Phase::Created | Phase::Starting { .. } | Phase::Running { .. }) {
        // K3: in a held one SIGHUP would kill the runtime's init.
        let (number, reason) = (signal.number(), phase.in_words());
        let text = format!("cannot send signal {number} to container {id}: it {reason}");
        return Err(Refusal::precondition(text));
    }
    signal_init(pod, id, signal, reach, SignalCause::Caller);
    Ok(Reply::Ok)
}

/// T3, K7, K8, K15, N2: keeps a sidecar's stop signal until its turn, which may be now; the first signal counts.
fn hold_signal(pod: &mut State, id: &ContainerId, signal: Signal, reach: Reach) {
    let Some(container) = pod.container_mut(id) else { return };
    let due = !container.ending.is_signalled() || container.ending.ends_for_restart();
    if due && container.ending.held_signal().is_none() {
        container.ending.hold_signal(signal, reach);
        pod.record(id, Milestone::SignalHeld { signal });
    }
}

/// K11, `zero-grace=obey`: the container is final, and its code is shown as it is.
fn kill_unordered(pod: &mut State, id: &ContainerId) {
    if let Some(container) = pod.container_mut(id) {
        container.ending.kill_unordered();
    }
    kill_now(pod, id, Reach::All, SignalCause::Caller);
}
