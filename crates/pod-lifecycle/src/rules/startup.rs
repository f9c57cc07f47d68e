//! Held containers: which are let go, which never start, and what their logs get meanwhile (S3, I2, J9, U6, U7, U13).
//!
//! Owns the end of a hold, and its lines. Never decides whether a container may start, nor the words: `questions::holds`
//! does. Changes: container, hold.

use crate::container::Container;
use crate::container::phase::Phase;
use crate::interface::action::{Action, LineTarget};
use crate::interface::exit::{Exit, NEVER_RAN};
use crate::interface::id::ContainerId;
use crate::interface::milestone::Milestone;
use crate::interface::time::{PodTime, show_duration};
use crate::questions::holds::{blocker, doubt_about, is_tried_again, may_start, wait_of};
use crate::questions::order::{never_done, stands_by};
use crate::rules::failure::cannot_start;
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

/// U6: when a container has been held for too long. U6 limits the wait for gates: that for the end of a stop has no limit (T11).
pub(crate) fn gate_timeout_due(pod: &State, container: &Container) -> Option<PodTime> {
    let Phase::Held(hold) = container.phase() else { return None };
    let limit = pod.settings()?.gate_timeout.filter(|_| !pod.is_stopping() && !stands_by(pod, container));
    limit.map(|limit| hold.since() + limit)
}

/// U6: the container fails, and its own log has the reason.
pub(crate) fn gate_timed_out(pod: &mut State, id: &ContainerId) {
    let Some(limit) = pod.settings().and_then(|settings| settings.gate_timeout) else { return };
    // What may start now has not waited in vain.
    let Some(container) = pod.container(id).filter(|container| !may_start(pod, container)) else { return };
    let member = container.member();
    let line = format!("held {} for {}", show_duration(limit), blocker(pod, container).unwrap_or_default());
    pod.record(id, Milestone::GateTimedOut);
    end_without_running(pod, id, NEVER_RAN, Some(line));
    if let Some(index) = member {
        cannot_start(pod, index, "was held longer than podshim.io/gate-timeout");
    }
}

/// Notes what a held container waits for, and whether it may wait for ever. A line is due some time after a change.
pub(crate) fn note_hold(pod: &mut State, id: &ContainerId) {
    let now = pod.now();
    let Some(container) = pod.container(id).filter(|container| container.is_held()) else { return };
    let (wait, has_doubt) = (wait_of(pod, container), doubt_about(pod, container).is_some());
    let Some(hold) = pod.container_mut(id).and_then(Container::hold_mut) else { return };
    hold.waits_for(wait, now);
    if has_doubt {
        hold.may_last();
    } else {
        hold.will_end();
    }
}

/// U7, U13: when a held container's log gets a line: after a second, when what it waits for has changed, and after 1, 10 and 60 minutes;
/// and after 10 s if it may wait for ever.
pub(crate) fn line_due(_: &State, container: &Container) -> Option<PodTime> {
    match container.phase() {
        Phase::Held(hold) => hold.next_line_due(),
        _ => None,
    }
}

/// Writes the line that is due.
pub(crate) fn write_hold_line(pod: &mut State, id: &ContainerId) {
    let now = pod.now();
    let Some(container) = pod.container(id) else { return };
    let doubt = doubt_about(pod, container);
    let Some(hold) = pod.container_mut(id).and_then(Container::hold_mut) else { return };
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
