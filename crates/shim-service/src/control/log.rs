//! The log's lines for events that no other file logs: exits, OOM kills, the phases of a stop.
//!
//! Owns the texts of these lines. Each event is logged once.

use pod_lifecycle::{Action, Milestone};
use tracing::info;

/// Logs what an action means, if no other file does.
pub(crate) fn write(action: &Action) {
    match action {
        Action::Record { container: Some(container), milestone: Milestone::Exited { exit } } => {
            info!(%container, code = exit.code, "exited");
        }
        Action::Record { container: Some(container), milestone: Milestone::OutOfMemory } => {
            info!(%container, "out of memory: the kernel has killed a process of it");
        }
        Action::Record { container: None, milestone: Milestone::LastCall } => {
            info!("the stop's time is over: every container that is left gets its stop signal");
        }
        Action::Record { container: None, milestone: Milestone::BudgetSpent } => {
            info!("the stop's time is spent: every container that is left is killed");
        }
        _ => {}
    }
}
