//! Held containers: which are let go, which never start, and what their logs get meanwhile (S3, I2, J9, U6, U7, U13).
//!
//! Owns the end of a hold, and its lines. Never decides whether a container may start, nor the words: `questions::holds`
//! does. Changes: container, hold.

use std::time::Duration;

use crate::container::Container;
use crate::container::gate_probe::GateProbe;
use crate::container::phase::Phase;
use crate::interface::action::{Action, LineTarget};
use crate::interface::exit::{Exit, NEVER_RAN};
use crate::interface::id::ContainerId;
use crate::interface::milestone::Milestone;
use crate::interface::time::show_duration;
use crate::questions::holds::{blocker, doubt_about, is_tried_again, may_start, wait_of};
use crate::questions::order::{never_done, stands_by};
use crate::rules::failure::cannot_start;
use crate::rules::gate::send_check;
use crate::state::State;
use crate::steps::finish::finish;
use crate::steps::start::release;
use crate::steps::unrun::end_without_running;

/// Releases held containers that may start (S3: all mains in one go), and ends those that never will (I2, J9).
pub(crate) fn release_held(pod: &mut State) {
    let held = pod.planned_where(|_, c| c.is_held());
    if let Some(failure) = pod.failure() {
        let line = format!("not started: {} {}", pod.member(failure.member), failure.reason);
        let never_ran = pod.planned_where(|_, c| c.is_held() && c.never_ran() && !is_tried_again(pod, c));
        for id in never_ran {
            end_without_running(pod, &id, NEVER_RAN, Some(line.clone()));
        }
        end_those_without_a_process(pod, &line);
    }
    // T11: in a stop it is held until that is over.
    let never = |id: &ContainerId| pod.container(id).filter(|c| c.never_ran() && !pod.is_stopping());
    let lost: Vec<_> =
        held.iter().filter_map(|id| Some((id.clone(), never_done(pod, never(id)?.member()?)?))).collect();
    for (id, failed) in lost {
        let code = pod.member(failed).ended().map_or(0, |ended| ended.real().code);
        let how = if code == 0 { "was not ready before it ended" } else { "failed" };
        let line = format!("not started: {} {how} with {code}", pod.member(failed));
        end_without_running(pod, &id, NEVER_RAN, Some(line));
    }
    let free: Vec<_> = held
        .into_iter()
        .filter(|id| {
            pod.container(id).is_some_and(|container| container.is_held() && may_start(pod, container))
        })
        .collect();
    for id in free {
        release(pod, &id, Vec::new());
    }
}

/// I2: ends held containers whose runtime's init was killed and that wait to be recreated (R7), or are being recreated (T10).
fn end_those_without_a_process(pod: &mut State, line: &str) {
    let waiting = pod.planned_where(|_, container| {
        container.is_held_without_a_process() && !is_tried_again(pod, container)
    });
    for id in waiting {
        let (line, to) = (line.to_owned(), LineTarget::LogAndTerminationMessage);
        pod.emit_change(Action::WriteLine { container: id.clone(), line, to });
        let Some(container) = pod.container_mut(&id) else { continue };
        match *container.phase() {
            Phase::BackingOff { last, .. } => finish(pod, &id, Exit { code: NEVER_RAN, at: last.at }),
            _ => container.end_instead_of_running(NEVER_RAN),
        }
    }
}

/// U6: the container fails, and its own log has the reason.
fn gate_timed_out(pod: &mut State, id: &ContainerId, limit: Duration, blocker: &str) {
    let line = format!("held {} for {blocker}", show_duration(limit));
    pod.record(id, Milestone::GateTimedOut);
    let init = pod.container(id).and_then(Container::member);
    end_without_running(pod, id, NEVER_RAN, Some(line));
    if let Some(index) = init {
        cannot_start(pod, index, "was held longer than podshim.io/gate-timeout");
    }
}

/// Probes that are due, hold lines (U7), gate timeouts (U6).
pub(crate) fn startup_timers(pod: &mut State, id: &ContainerId) {
    let now = pod.now();
    let gate_timeout = pod.settings().and_then(|settings| settings.gate_timeout);
    let Some(container) = pod.container(id) else { return };
    if let Phase::Held(hold) = container.phase() {
        if let Some(limit) = gate_timeout
            && !pod.is_stopping()
            && !stands_by(pod, container)
            // What may start now has not waited in vain.
            && !may_start(pod, container)
            && now >= hold.since() + limit
        {
            let blocker = blocker(pod, container).unwrap_or_default();
            return gate_timed_out(pod, id, limit, &blocker);
        }
        return hold_timer(pod, id);
    }
    if container.probe().and_then(GateProbe::deadline).is_some_and(|at| now >= at) {
        send_check(pod, id);
    }
}

/// Writes what a held container waits for: after a second, when that changes, and after 1, 10 and 60 minutes; and after 10 s what
/// may make it wait for ever.
fn hold_timer(pod: &mut State, id: &ContainerId) {
    let now = pod.now();
    let Some(container) = pod.container(id) else { return };
    let wait = wait_of(pod, container);
    let doubt = doubt_about(pod, container);
    let Some(hold) = pod.container_mut(id).and_then(Container::hold_mut) else { return };
    hold.waits_for(wait, now);
    match doubt {
        Some(_) => hold.may_last(),
        None => hold.will_end(),
    }
    if let (Some(line), true) = (doubt, hold.take_doubt(now)) {
        pod.emit_change(Action::Warn(format!("container {id}: {line}")));
        return pod.emit_change(Action::WriteLine { container: id.clone(), line, to: LineTarget::Log });
    }
    if !hold.line_is_due(now) {
        return;
    }
    hold.written(now);
    let Some(container) = pod.container(id) else { return };
    let line = format!("held: waiting for {}", blocker(pod, container).unwrap_or_default());
    pod.emit_change(Action::WriteLine { container: id.clone(), line, to: LineTarget::Log });
}
