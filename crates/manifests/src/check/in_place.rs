//! What a kubelet does only once for a container that podshim restarts in place (R6): it sees a container that runs on. Owns the
//! hooks and probes for which that matters.

use pod_spec::{CodeSet, Member, PREFIX, Plan, RestartPolicy, Role};

use super::own_restart::in_place;
use crate::finding::{Finding, Severity};
use crate::manifest::{Container, List};

/// The findings on a planned container.
pub(super) fn of_container(
    file: &str,
    container: &Container<'_>,
    member: &Member,
    plan: &Plan,
) -> Vec<Finding> {
    let policy = plan.settings.restart_policy;
    if in_place(member, policy) == CodeSet::EMPTY {
        return Vec::new();
    }
    let name = container.name;
    let finding = |line: usize, message: String, otherwise: &str| {
        // R15: what a caller does not recreate would be lost, and a main would have ended.
        let is_recreated = policy != RestartPolicy::Never || container.list == List::NativeSidecar;
        if is_recreated && member.role != Role::Main {
            let called = member.alias.as_ref().unwrap_or(&member.name);
            let fix = format!("write {PREFIX}restart.{called}: visible");
            Finding::new(Severity::Warning, file, line, message).fix(fix)
        } else {
            Finding::new(Severity::Warning, file, line, format!("{message}; {otherwise}"))
        }
    };
    let mut found = Vec::new();
    if let Some((hook, _)) = container.node.get("lifecycle").and_then(|it| it.entry("postStart")) {
        let message = format!(
            "podshim restarts {name:?} in place, and the kubelet does not run its postStart hook again"
        );
        found.push(finding(hook.start.line, message, "let its program do what the hook does"));
    }
    if let (Some((probe, _)), Some(_)) =
        (container.node.entry("startupProbe"), container.node.get("livenessProbe"))
    {
        let message = format!(
            "podshim restarts {name:?} in place, and the kubelet does not ask this again: its livenessProbe goes on at once, and \
             kills {name:?} if it starts too slowly for that"
        );
        found.push(finding(probe.start.line, message, "its livenessProbe has to allow for a start"));
    }
    found
}
