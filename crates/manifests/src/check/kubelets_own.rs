//! Containers of `initContainers` that the plan does not name (S8). Its kubelet runs such an init to its end before it creates what
//! the plan would have it wait for. Owns which of them `*=main` takes for mains.

use pod_spec::{PREFIX, Plan};

use super::proposal;
use crate::finding::{Finding, Severity};
use crate::manifest::{Container, List};
use crate::yaml::Node;

/// The finding on such a container.
pub(super) fn of_container(
    file: &str,
    container: &Container<'_>,
    plan: &Plan,
    annotations: &Node,
) -> Option<Finding> {
    if container.list == List::Regular || container.name.is_empty() || !plan.makes_main_of(container.name) {
        return None;
    }
    let name = container.name;
    let awaited = plan.links_of_unnamed_main().into_iter().find(|link| link.until.is_some());
    let message = match awaited {
        Some(link) => {
            let awaited = &plan.members[link.earlier].name;
            format!(
                "{name:?} is one of initContainers, and for podshim a main, which waits for {awaited:?}: the kubelet creates \
                 nothing else before {name:?} has {}, so both wait for ever",
                if container.list == List::Init { "ended" } else { "started" }
            )
        }
        None => format!("{name:?} is one of initContainers, and for podshim a main"),
    };
    let severity = if awaited.is_some() { Severity::Error } else { Severity::Warning };
    let fix = match container.list {
        List::NativeSidecar => proposal::add_sidecar(annotations, name),
        List::Init | List::Regular => format!("write {PREFIX}role.{name}: {}", proposal::KUBELETS_OWN),
    };
    Some(Finding::new(severity, file, container.node.start.line, message).fix(fix))
}
