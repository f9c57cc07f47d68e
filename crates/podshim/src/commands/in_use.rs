//! What podshim is still needed for on a node: `podshim uninstall` refuses as long as it is.
//!
//! Owns these reasons and what to do about each. Changes nothing.

use std::fmt::Display;

use node_setup::install::cri::Sandbox;
use node_setup::install::running::{default_runtime, sandboxes};
use node_setup::install::{self, Layout};

use crate::outcome::CommandError;
use crate::pods::{PodReport, PodState};
use crate::shims;

/// Whether the node's programs run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeState {
    /// They do, where this command runs.
    Here,
    /// They do, and this command is in a container that has the node's root below a directory.
    Mounted,
    /// They do not: a file system for a node.
    Elsewhere,
}

/// Refuses while podshim is containerd's default runtime, in its files or as it runs: no pod of the node could start.
///
/// # Errors
/// It is, or a file cannot be read.
pub(super) fn refuse_default(layout: &Layout, node: NodeState) -> Result<(), CommandError> {
    let failed = |error: install::InstallError| CommandError::Input(error.to_string());
    if let Some((file, name)) = install::default_in_file(layout).map_err(failed)? {
        return Err(CommandError::Input(format!(
            "{}: podshim is the default runtime ({name:?}): without it no pod of this node could start. Set \
             default_runtime_name to \"runc\" there and restart containerd first; nothing was changed",
            layout.root.shown(&file).display()
        )));
    }
    if node == NodeState::Elsewhere {
        return Ok(());
    }
    match default_runtime(&layout.root, &layout.found) {
        Ok(Some(name)) if install::names_of_podshim(layout).map_err(failed)?.contains(&name) => {
            Err(CommandError::Input(format!(
                "containerd still runs with podshim as its default runtime ({name:?}), though no file says so any more: \
                 restart it first; nothing was changed"
            )))
        }
        // Without an answer its files count.
        Ok(_) | Err(_) => Ok(()),
    }
}

/// Refuses while pods run on podshim, as podshim's own directory and containerd know them. A live shim has its program in
/// memory, but containerd cleans up after it, and after a dead one, with `delete`, which runs the file.
///
/// A container may not have all of the node below its directory: there containerd must answer, which shows that it has the
/// node's /run, where podshim's own directory is.
///
/// # Errors
/// Pods do, or the node does not say whether they do.
pub(super) fn refuse_running(layout: &Layout, node: NodeState) -> Result<(), CommandError> {
    let unknown = |reason: &dyn Display| {
        CommandError::Input(format!(
            "cannot find out which pods run on this node: {reason}; nothing was changed. Mend that, or give --force"
        ))
    };
    let shims = shims::all_below(&layout.root).map_err(|error| unknown(&error))?;
    let pods: Vec<_> = shims.into_iter().map(PodReport::of).collect();
    let mut reasons = of_entries(&pods);
    let socket = layout.found.distribution.socket().display();
    match (sandboxes(&layout.root, &layout.found), node) {
        (_, NodeState::Elsewhere) | (Err(_), NodeState::Here) => {}
        (Ok(sandboxes), _) => reasons.extend(of_containerd(layout, &sandboxes, &pods)?),
        (Err(error), NodeState::Mounted) if reasons.is_empty() => {
            return Err(unknown(&format_args!("containerd at {socket}: {error}")));
        }
        (Err(_), NodeState::Mounted) => {}
    }
    if reasons.is_empty() {
        return Ok(());
    }
    Err(CommandError::Input(format!(
        "{}; containerd needs the shim's program to clean up after them; or give --force",
        reasons.join("; ")
    )))
}

/// Why the pods in podshim's own directory need it.
fn of_entries(pods: &[PodReport]) -> Vec<String> {
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
    reasons.map(|(pods, before, after)| format!("{before}{pods}{after}")).collect()
}

/// The pods that containerd has on podshim, and that are not among those of podshim's own directory.
fn of_containerd(
    layout: &Layout,
    sandboxes: &[Sandbox],
    known: &[PodReport],
) -> Result<Option<String>, CommandError> {
    let failed = |error: install::InstallError| CommandError::Input(error.to_string());
    let names = install::names_of_podshim(layout).map_err(failed)?;
    let on_podshim = sandboxes.iter().filter(|sandbox| names.contains(&sandbox.handler));
    let unknown = on_podshim.filter(|sandbox| !known.iter().any(|pod| pod.title() == sandbox.pod));
    let pods: Vec<_> = unknown.map(|sandbox| sandbox.pod.as_str()).collect();
    let says = || format!("containerd has these pods on podshim: {}: remove them first", pods.join(", "));
    Ok((!pods.is_empty()).then(says))
}
