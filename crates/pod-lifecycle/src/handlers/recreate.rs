//! The end of a recreation (R6).
//!
//! Owns what a new process waits for, and what a failed recreation means (R4, R7). Never decides that a container is
//! recreated: `rules::restart` does. Changes: container.

use crate::container::phase::{Phase, Program};
use crate::interface::action::Action;
use crate::interface::exit::{Exit, START_FAILED};
use crate::interface::id::ContainerId;
use crate::interface::milestone::Milestone;
use crate::interface::outcome::Outcome;
use crate::questions::holds::hold_reason;
use crate::questions::restarts::{LastRun, is_started_again, is_unwanted};
use crate::rules::exit::ended_for_good;
use crate::state::State;
use crate::steps::back_off::{back_off, restart_later};
use crate::steps::finish::finish;
use crate::steps::oom_score::limit_oom_scores;
use crate::steps::unrun::end_without_running;

/// A recreation has ended.
pub(crate) fn recreation_ended(pod: &mut State, id: ContainerId, outcome: Outcome, ended: Exit) {
    let now = pod.now();
    let Some(container) = pod.container(&id) else { return };
    let Phase::Recreating { last, .. } = *container.phase() else { return };
    // It may have become unwanted while it was being recreated (R5, K3, K16).
    let unwanted = is_unwanted(pod, container);
    let Some(container) = pod.container_mut(&id) else { return };
    match outcome {
        Outcome::Process { pid } => {
            container.recreated(pid, now);
            // A standby stays held after a switch (V2). Most others are released at once: they wait for nothing.
            if let Some(reason) = hold_reason(pod, &id) {
                pod.record(&id, Milestone::Held { reason });
            }
            limit_oom_scores(pod, &id);
            if unwanted {
                end_without_running(pod, &id, last.code, None);
            }
        }
        Outcome::Failed(_) if unwanted => finish(pod, &id, last),
        Outcome::Failed(failure) => {
            pod.emit_change(Action::Warn(format!(
                "container {id} could not be restarted: {}",
                failure.message
            )));
            pod.record(&id, Milestone::StartFailed { reason: failure.message });
            let failed = Exit { code: START_FAILED, at: ended.at };
            let Some(container) = pod.container(&id) else { return };
            match container.program() {
                Program::NeverRan => back_off(pod, &id, failed),
                Program::HasRun if is_started_again(pod, container) => {
                    restart_later(pod, &id, failed);
                }
                Program::HasRun => ended_for_good(pod, &id, failed, LastRun::NotStarted),
            }
        }
        Outcome::Ok => pod.impossible(format!("container {id} re-created without a process")),
    }
}
