//! What a kubelet does with a container while its pod restarts in place (R14): it sees a container that runs on.

use pod_spec::{Member, PREFIX, Plan, Role};

use crate::manifest::{Container, List};

/// What a kubelet does not do as the plan's author may expect.
pub struct Warning {
    /// The line in the manifest.
    pub line: usize,
    /// What happens.
    pub message: String,
    /// What to do about it, if one word says that.
    pub fix: Option<&'static str>,
}

/// The warnings about a planned container; none if the plan has no `fatal.<c>=restart`.
pub fn of_container(container: &Container<'_>, member: &Member, plan: &Plan) -> Vec<Warning> {
    let Some(cause) = plan.members.iter().find(|member| member.restarts_the_pod()) else { return Vec::new() };
    let key = format!("{PREFIX}fatal.{}", cause.alias.as_ref().unwrap_or(&cause.name));
    let name = container.name;
    let mut found = Vec::new();
    if (container.list, member.role) == (List::Init, Role::Init) {
        found.push(Warning {
            line: container.node.start.line,
            message: format!(
                "{name:?} does not run again when the pod restarts ({key}): the kubelet has seen its exit"
            ),
            fix: Some("move it to containers"),
        });
    }
    if let Some((probe, _)) = container.node.entry("livenessProbe") {
        found.push(Warning {
            line: probe.start.line,
            message: format!(
                "the kubelet asks {name:?} while the pod restarts ({key}) too, and kills it if the pod's stop and \
                 start take too long for this probe"
            ),
            fix: None,
        });
    }
    if let Some((probe, _)) = container.node.entry("startupProbe") {
        found.push(Warning {
            line: probe.start.line,
            message: format!(
                "the kubelet does not run this again when the pod restarts ({key}): the other probes of {name:?} \
                 go on at once"
            ),
            fix: None,
        });
    }
    found
}
