//! What podshim is still needed for on a node: `podshim uninstall` refuses as long as it is.
//!
//! Owns these reasons and what to do about each. Changes nothing.

use crate::install::stay::default_runtime;
use crate::install::{self, Layout};
use crate::outcome::CommandError;
use crate::pods::{PodReport, PodState};
use crate::shims;

/// Whether the node's programs run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Here,
    Elsewhere,
}

/// Refuses while podshim is containerd's default runtime, in its files or as it runs: no pod of the node could start.
///
/// # Errors
/// It is, or a file cannot be read.
pub(super) fn refuse_default(layout: &Layout, node: Node) -> Result<(), CommandError> {
    let failed = |error: install::InstallError| CommandError::Input(error.to_string());
    if let Some((file, name)) = install::default_in_file(layout).map_err(failed)? {
        return Err(CommandError::Input(format!(
            "{}: podshim is the default runtime ({name:?}): without it no pod of this node could start. Set \
             default_runtime_name to \"runc\" there and restart containerd first; nothing was changed",
            layout.root.shown(&file).display()
        )));
    }
    if node == Node::Elsewhere {
        return Ok(());
    }
    match default_runtime(&layout.root, &layout.found) {
        Ok(Some(name)) if install::is_podshims_name(layout, &name).map_err(failed)? => {
            Err(CommandError::Input(format!(
                "containerd still runs with podshim as its default runtime ({name:?}), though no file says so any more: \
                 restart it first; nothing was changed"
            )))
        }
        // Without an answer its files count.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Refuses while pods run on podshim. A live shim has its program in memory, but containerd cleans up after it, and after a
/// dead one, with `delete`, which runs the file.
///
/// # Errors
/// Pods do, or the node does not say.
pub(super) fn refuse_running(layout: &Layout) -> Result<(), CommandError> {
    let pods: Vec<_> = shims::all_below(&layout.root)?.into_iter().map(PodReport::of).collect();
    if pods.is_empty() {
        return Ok(());
    }
    let in_states = |states: &[PodState]| {
        let those = pods.iter().filter(|pod| states.contains(&pod.state));
        those.map(PodReport::title).collect::<Vec<_>>().join(", ")
    };
    let reasons = [
        (
            in_states(&[PodState::Running, PodState::Stopping, PodState::Restarting, PodState::ShimSilent]),
            "these pods run on podshim: ",
            ": end them first, with `podshim drain`",
        ),
        (
            in_states(&[PodState::Completed, PodState::Failed, PodState::Stopped]),
            "these pods have ended, and their shims keep their exits: ",
            ": start containerd, which must take their exits, and remove the pods",
        ),
        (
            in_states(&[PodState::ShimDead]),
            "of these pods the shim is dead: ",
            ": start containerd, which cleans up after them",
        ),
    ];
    let reasons = reasons.into_iter().filter(|(pods, ..)| !pods.is_empty());
    let reasons: Vec<_> = reasons.map(|(pods, before, after)| format!("{before}{pods}{after}")).collect();
    Err(CommandError::Input(format!(
        "{}; containerd needs the shim's program to clean up after them; or give --force",
        reasons.join("; ")
    )))
}
