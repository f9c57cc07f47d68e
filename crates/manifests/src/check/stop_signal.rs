//! Stop signals that differ (K18): the kubelet's of `lifecycle.stopSignal`, and the one that podshim sends itself.

use pod_spec::{Member, PREFIX, Signal};

use crate::manifest::Container;

/// The line of a `lifecycle.stopSignal` that `stop-signal.<c>` does not repeat, what comes of that, and the fix.
pub fn of_container(container: &Container<'_>, member: &Member) -> Option<(usize, String, String)> {
    let (key, wanted) = container.stop_signal()?;
    let own = member.stop_signal.unwrap_or(Signal::TERM);
    if own == wanted {
        return None;
    }
    let name = container.name;
    // K6: HUP is a stop signal unless the plan names another one.
    let message = if wanted == Signal::HUP && member.stop_signal.is_some() {
        format!(
            "the kubelet stops {name:?} with {wanted}, which podshim takes for a reload, as the plan names {own}"
        )
    } else {
        format!("the kubelet stops {name:?} with {wanted}, and podshim, where it begins a stop, with {own}")
    };
    let called = member.alias.as_deref().unwrap_or(name);
    Some((key.start.line, message, format!("write {PREFIX}stop-signal.{called}: {wanted}")))
}
