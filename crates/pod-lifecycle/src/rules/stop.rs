//! How a stop of the pod begins.

use pod_spec::{Role, Signal};

use crate::container::Container;
use crate::container::ending::NextExit;
use crate::container::phase::{ExitedFrom, Part, Phase, Program};
use crate::interface::action::Action;
use crate::interface::exit::Exit;
use crate::interface::id::ContainerId;
use crate::interface::milestone::Milestone;
use crate::interface::time::PodTime;
use crate::questions::grace::limit_of;
use crate::questions::holds::is_native;
use crate::questions::order::stands_by;
use crate::rules::lone_stop::revoke_lone_stops;
use crate::rules::zero_grace::share_zero_grace;
use crate::state::State;
use crate::steps::finish::finish;
use crate::steps::hooks::stop_after_hooks;
use crate::steps::unrun::{end_latecomer, end_without_running};
use crate::stop::{Budget, SandboxEnd, Stop, StopCause};

pub(crate) fn begin_stop(pod: &mut State, cause: StopCause) {
    begin_stop_within(pod, cause, limit_of(pod, cause));
}

pub(crate) fn begin_stop_within(pod: &mut State, cause: StopCause, limit: Option<PodTime>) {
    if let Some(stop) = &mut pod.stop {
        let outranks = match (stop.cause, cause) {
            (StopCause::Sandbox(_), StopCause::Sandbox(SandboxEnd::Died)) => true,
            // The signal that pause gets in the end: a TERM, which pause would ignore, must not keep a KILL from
            // it.
            (
                StopCause::Sandbox(SandboxEnd::Killed(_)),
                StopCause::Sandbox(SandboxEnd::Killed(Signal::KILL)),
            ) => true,
            (StopCause::Sandbox(_), _) => false,
            (_, StopCause::Sandbox(_)) => true,
            (was, StopCause::Requested) => was != StopCause::Requested,
            _ => false,
        };
        // T9: the same stop again, with less time.
        let before = stop.budget;
        if cause == StopCause::Requested {
            stop.budget = before.tightened(cause, limit);
        }
        if !outranks {
            if stop.budget != before {
                record_stop(pod);
                pod.mark_changed();
            }
            return;
        }
    }
    let budget = pod.stop.as_ref().map_or(Budget::Callers, |stop| stop.budget).tightened(cause, limit);
    pod.stop = Some(Stop { cause, budget, others_until: pod.now + pod.lone_stop_window() });
    record_stop(pod);
    pod.emit_change(Action::Note(format!("pod stop begins: {cause:?}")));
    revoke_lone_stops(pod);
    close_gates(pod);
    signal_mains(pod);
}

pub(crate) fn record_stop(pod: &mut State) {
    let Some(stop) = &pod.stop else { return };
    pod.record_of_pod(Milestone::StopBegan(stop.inspect(pod.now)));
}

/// T11: from T0 on no planned container starts. Held ones end at once, hidden exits are shown (I5), no probe runs
/// (H8).
pub(crate) fn close_gates(pod: &mut State) {
    let Some(stop) = pod.stop.clone() else { return };
    // I5: a caller that stops the pod stops a hidden init itself (K4). If another stop showed its exit, the caller
    // would run it again.
    let stays_hidden = stop.goes_on() && pod.sandbox.is_some() && !pod.sandbox_gone;
    let ids: Vec<_> = pod.planned_where(|_, _| true);
    for id in ids {
        let code = code_of_unrun(pod, &stop, &id);
        // T11: a caller that stops the pod stops held containers itself. But a standby ends at once (V2).
        let stays_held =
            !stop.is_ours() && !pod.containers.get(&id).is_some_and(|container| stands_by(pod, container));
        // I2: `release` ends the held containers of a failed pod, with the reason.
        let fails_with_pod = pod.failure.is_some()
            && !pod.containers.get(&id).is_some_and(|container| is_native(pod, container));
        let Some(container) = pod.containers.get_mut(&id) else { continue };
        container.probe = None;
        let never_ran = container.program == Program::NeverRan;
        match &mut container.phase {
            Phase::Hidden { .. } if stays_hidden => {}
            Phase::Hidden { exit } => {
                let exit = *exit;
                finish(pod, &id, exit);
            }
            _ if !never_ran || stays_held || fails_with_pod => {}
            Phase::Held(_) => end_without_running(pod, &id, code, None),
            Phase::Draining { was: was @ ExitedFrom::Held, .. } => *was = ExitedFrom::Ending { code },
            Phase::BackingOff { last, .. } => {
                let at = last.at;
                finish(pod, &id, Exit { code, at });
            }
            Phase::Recreating { last, .. } => {
                last.code = code;
                container.ending.next_exit = NextExit::Final;
            }
            _ => {}
        }
        end_latecomer(pod, &id);
    }
}

/// The exit code of a container whose program this stop keeps from running (T11). In a complete pod a main keeps
/// the code it ended with before (J11).
pub(crate) fn code_of_unrun(pod: &State, stop: &Stop, id: &ContainerId) -> u32 {
    let member = pod.containers.get(id).and_then(Container::member).map(|index| &pod.members[index]);
    let before = member
        .filter(|state| stop.cause == StopCause::Completed && state.member.role == Role::Main)
        .and_then(|state| state.ended.as_ref()?.counted_code());
    before.unwrap_or_else(|| stop.code_of_held())
}

/// T2: in a stop by podshim mains and running inits get their signal at once, all together. In a requested stop
/// passthrough containers get it too.
pub(crate) fn signal_mains(pod: &mut State) {
    let Some(stop) = pod.stop.as_ref().filter(|stop| stop.is_ours()) else { return };
    let everything = stop.cause == StopCause::Requested;
    let ids: Vec<_> = pod
        .containers
        .values()
        .filter(|container| container.ending.term_at.is_none() && container.has_process())
        .filter(|container| match (container.part, pod.role(container)) {
            (Part::Passthrough, _) => everything,
            (_, Some(Role::Main | Role::Init)) => container.is_alive(),
            _ => false,
        })
        .map(|container| container.id.clone())
        .collect();
    for id in ids {
        stop_after_hooks(pod, &id, None, None);
        share_zero_grace(pod, &id);
    }
}
