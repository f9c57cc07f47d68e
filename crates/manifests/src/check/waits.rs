//! What a container of a manifest waits for by its pod's plan.
//!
//! Owns which containers `*=main` makes mains of here. Knows nothing of what follows from a wait.

use pod_spec::{Link, Plan};

use crate::manifest::{Container, List};

/// What a container waits for by itself, and what it outlives.
pub(super) fn links_of(container: &Container<'_>, plan: &Plan) -> Vec<Link> {
    let unnamed = plan.makes_main_of(container.name) && container.list == List::Regular;
    match plan.member(container.name) {
        Some((index, _)) => plan.links(index),
        None if unnamed => plan.links_of_unnamed_main(),
        None => Vec::new(),
    }
}
