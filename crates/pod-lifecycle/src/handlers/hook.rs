//! The end of a hook (H1, H3).
//!
//! Owns what is logged of it. Never lets a result change what comes next, but for that of a migrate hook (V4).
//! Changes: hooks.

use crate::container::hooks::HookEnd;
use crate::container::phase::Phase;
use crate::interface::action::{Action, LineTarget};
use crate::interface::id::{ContainerId, OpId};
use crate::interface::milestone::Milestone;
use crate::interface::operation::Hook;
use crate::interface::outcome::{Failure, Outcome};
use crate::rules::exit::finish_if_drained;
use crate::rules::standby::migrate_hook_ended;
use crate::state::State;
use crate::steps::hooks::go_on_with_hooks;

/// H1, H3: logs the result, which changes nothing.
pub(crate) fn hook_ended(pod: &mut State, id: &ContainerId, op: OpId, outcome: Outcome) {
    let Some(container) = pod.container_mut(id) else { return };
    let hook = match container.hooks.end(op) {
        Some(HookEnd::Awaited(hook)) => hook,
        Some(HookEnd::Lost) | None => return,
    };
    let ended_with_it = matches!(container.phase(), Phase::Draining { .. });
    let failure = match &outcome {
        Outcome::Failed(failure) => Some(failure.message.clone()),
        _ => None,
    };
    pod.record(id, Milestone::HookEnded { hook, failure });
    match outcome {
        outcome if hook == Hook::Migrate => migrate_hook_ended(pod, id, &outcome),
        // Often the purpose of the hook: it makes its program quit.
        Outcome::Failed(_) if ended_with_it => {
            pod.note(format!("container {id}: {hook} hook ended with its container"));
        }
        Outcome::Failed(Failure { message, .. }) => {
            let line = format!("{hook} hook: {message}");
            pod.emit_change(Action::WriteLine { container: id.clone(), line, to: LineTarget::Log });
        }
        _ => pod.note(format!("container {id}: {hook} hook succeeded")),
    }
    go_on_with_hooks(pod, id);
    finish_if_drained(pod, id);
}
