//! A planned container that stands in a list of the pod whose kubelet starts it otherwise than the plan has it. Owns which lists fit
//! which roles.

use pod_spec::Role;

use crate::finding::{Finding, Severity};
use crate::manifest::{Container, List};

/// The finding on a container with that role in the plan.
pub(super) fn of_container(file: &str, container: &Container<'_>, role: Role) -> Option<Finding> {
    let name = container.name;
    let (message, fix) = match (container.list, role) {
        (List::Init, Role::Sidecar | Role::Main) => (
            format!("{name:?} is one of initContainers: the kubelet waits for its exit before anything else"),
            "move it to containers",
        ),
        (List::NativeSidecar, Role::Init | Role::Main) => (
            format!("{name:?} is a sidecar for the kubelet (restartPolicy: Always), and none in the plan"),
            match role {
                Role::Init => "remove its restartPolicy, or make it a sidecar in the plan",
                Role::Sidecar | Role::Main => "move it to containers, without its restartPolicy",
            },
        ),
        _ => return None,
    };
    Some(Finding::new(Severity::Error, file, container.node.start.line, message).fix(fix))
}
