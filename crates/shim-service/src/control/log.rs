//! The log's lines on what happens to a pod's containers: each exit and signal once, beside what the core and the
//! operations say themselves. Owns the words of these.

use pod_lifecycle::{Action, Milestone};
use tracing::info;

/// Says what an action means to people, where nothing else does.
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
