//! How a stop of the pod begins (T2, T11, T12).
//!
//! Owns what happens at T0. Never decides whose turn it is later, which `rules::turns` does; its end is `rules::round`, and
//! how long it may take `questions::grace`. Changes: container, ending, hooks, stop.

use pod_spec::Role;

use crate::container::Container;
use crate::container::phase::{Part, Phase};
use crate::interface::exit::Exit;
use crate::interface::id::ContainerId;
use crate::interface::milestone::Milestone;
use crate::interface::stop_cause::StopCause;
use crate::interface::time::PodTime;
use crate::member::MemberState;
use crate::questions::grace::{figures, limit_of, own_grace};
use crate::questions::holds::is_native;
use crate::questions::order::stands_by;
use crate::questions::pod_restart::is_renewed;
use crate::rules::lone_stop::revoke_lone_stops;
use crate::rules::zero_grace::share_zero_grace;
use crate::state::State;
use crate::steps::finish::finish;
use crate::steps::hooks::stop_after_hooks;
use crate::steps::renew::renew;
use crate::steps::signal::deliver_stop;
use crate::steps::unrun::{end_latecomer, end_without_running};
use crate::stop::Stop;

/// A stop of the pod begins, with the time that its cause gives it (T5, T12).
pub(crate) fn begin_stop(pod: &mut State, cause: StopCause) {
    begin_stop_within(pod, cause, limit_of(pod, cause));
}

/// A stop of the pod begins, or the one under way gets another cause or less time (T9, T12).
pub(crate) fn begin_stop_within(pod: &mut State, cause: StopCause, limit: Option<PodTime>) {
    let now = pod.now();
    if let Some(stop) = pod.stop_mut() {
        let outranked = stop.is_outranked_by(cause);
        // T9: the same stop again, with less time.
        let tightened = cause == StopCause::Requested && stop.tighten(cause, limit, now);
        if !outranked {
            if tightened {
                record_stop(pod);
                shorten_own_graces(pod);
                pod.mark_changed();
            }
            return;
        }
    }
    let stop = Stop::begin(pod.stop(), cause, limit, now, figures(pod));
    pod.begin_stop(stop);
    record_stop(pod);
    shorten_own_graces(pod);
    pod.note(format!("pod stop begins: {cause:?}"));
    revoke_lone_stops(pod);
    close_gates(pod);
    signal_mains(pod);
    if cause == StopCause::ZeroGrace {
        hurry_begun(pod);
    }
}

/// K11: a caller's SIGKILL in a stop of podshim's own leaves it the time of a stop that begins so. A restart of the pod becomes
/// that stop (R14).
pub(crate) fn hurry_stop(pod: &mut State) {
    let (limit, now) = (limit_of(pod, StopCause::ZeroGrace), pod.now());
    if pod.is_restarting() {
        return begin_stop_within(pod, StopCause::ZeroGrace, limit);
    }
    if let Some(stop) = pod.stop_mut() {
        stop.hurry(limit, now);
        record_stop(pod);
    }
    hurry_begun(pod);
}

/// K11: what has its stop signal already, or waits for it, has its share of that time too, and none for hooks.
fn hurry_begun(pod: &mut State) {
    pod.mark_changed();
    let begun = pod.planned_where(|_, container| {
        container.has_process() && (container.ending.is_signalled() || container.hooks.has_waiting_stop())
    });
    for id in begun {
        if pod.container(&id).is_some_and(|container| container.hooks.has_waiting_stop()) {
            deliver_stop(pod, &id, None);
        }
        // U4, T16: a sidecar that may run again has its turn yet.
        let has_turn = |container: &Container| {
            pod.role(container) != Some(Role::Sidecar) || !container.ending.ends_for_restart()
        };
        if pod.container(&id).is_some_and(has_turn) {
            share_zero_grace(pod, &id);
        }
    }
}

fn record_stop(pod: &mut State) {
    let Some(stop) = pod.stop() else { return };
    pod.record_of_pod(Milestone::StopBegan(stop.inspect(pod.now())));
}

/// T20: the time of a container whose end had begun before the stop, or before it had less time.
fn shorten_own_graces(pod: &mut State) {
    for id in pod.planned_where(|_, container| container.has_process()) {
        let grace = own_grace(pod, &id);
        if let (Some(grace), Some(container)) = (grace, pod.container_mut(&id)) {
            container.hooks.shorten(grace);
            if let Some(at) = container.ending.signalled_at().filter(|_| container.ending.kill_at().is_some())
            {
                container.ending.kill_by(at + grace);
            }
        }
    }
}

/// T11: from T0 on no planned container starts. Held ones end at once, hidden exits are shown (I5), no probe runs
/// (H8).
fn close_gates(pod: &mut State) {
    let Some(stop) = pod.stop().cloned() else { return };
    // I5: a caller that stops the pod stops a hidden init itself (K4). If another stop showed its exit, the caller
    // would run it again.
    // Under Never it would not: podshim hid it for a restart of the pod (R14), and the failed pod has to end.
    let stays_hidden = stop.goes_on()
        && pod.sandbox.id().is_some()
        && !pod.sandbox.is_gone()
        && !(pod.recreates_nothing() && stop.is_ours());
    let restarts = stop.cause() == StopCause::Restart;
    let ids: Vec<_> = pod.planned_where(|_, _| true);
    for id in ids {
        let code = code_of_unrun(pod, &stop, &id);
        // T11: a caller that stops the pod stops held containers itself. But a standby ends at once (V2).
        let stays_held = restarts
            || (!stop.is_ours() && !pod.container(&id).is_some_and(|container| stands_by(pod, container)));
        let renewed = pod.container(&id).is_some_and(|container| is_renewed(pod, container));
        // I2: `release_held` ends the held containers of a failed pod, with the reason.
        let fails_with_pod =
            pod.failure().is_some() && !pod.container(&id).is_some_and(|container| is_native(pod, container));
        let Some(container) = pod.container_mut(&id) else { continue };
        container.stop_probing();
        match *container.phase() {
            Phase::Hidden { exit } if renewed => renew(pod, &id, exit),
            Phase::Hidden { .. } if stays_hidden => {}
            Phase::Hidden { exit } => finish(pod, &id, exit),
            _ if !container.never_ran() || stays_held || fails_with_pod => {}
            Phase::Held(_) => end_without_running(pod, &id, code, None),
            Phase::BackingOff { last, .. } => finish(pod, &id, Exit { code, at: last.at }),
            _ => container.end_instead_of_running(code),
        }
        end_latecomer(pod, &id);
    }
}

/// The exit code of a container whose program this stop keeps from running (T11). In a complete pod a main keeps
/// the code it ended with before (J11).
fn code_of_unrun(pod: &State, stop: &Stop, id: &ContainerId) -> u32 {
    let member = pod.container(id).and_then(|container| pod.member_of(container));
    let before = member
        .filter(|state| stop.cause() == StopCause::Completed && state.role() == Role::Main)
        .and_then(MemberState::counted_code);
    before.unwrap_or_else(|| stop.code_of_held())
}

/// T2: in a stop by podshim mains and running inits get their signal at once, all together. In a requested stop
/// passthrough containers get it too.
fn signal_mains(pod: &mut State) {
    let Some(stop) = pod.stop().filter(|stop| stop.is_ours()) else { return };
    let everything = stop.cause() == StopCause::Requested;
    let ids: Vec<_> = pod
        .containers()
        .filter(|container| !container.ending.is_signalled() && container.has_process())
        .filter(|container| match (container.part(), pod.role(container)) {
            (Part::Passthrough, _) => everything,
            // I6: an init has no turn.
            (_, Some(Role::Main | Role::Init)) => container.is_unfinished(),
            _ => false,
        })
        .map(|container| container.id().clone())
        .collect();
    for id in ids {
        stop_after_hooks(pod, &id, None, None);
        share_zero_grace(pod, &id);
    }
}
