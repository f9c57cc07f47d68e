//! What all containers of the pod share: its namespace, its files, its share of a processor.
//!
//! Owns where a pod's console sockets are. Its fields are set when the shim begins to serve and never change.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use node_state::paths::STATE_ROOT;
use streams::head::Hands;

use crate::throttle::Throttle;

/// What all containers of the pod share.
#[derive(Clone, Debug)]
pub(crate) struct PodContext {
    /// containerd's namespace.
    pub(crate) namespace: Rc<str>,
    /// podshim's configuration file on this node.
    pub(crate) node_file: Rc<Path>,
    /// While this file exists, the node is being drained (N7).
    pub(crate) draining_file: Rc<Path>,
    /// The pod's directory below `/run/podshim`, with its entry.
    pub(crate) state_directory: Rc<Path>,
    /// Where console sockets are made.
    pub(crate) console_directory: Rc<Path>,
    /// The thread of the streams of all containers, or two.
    pub(crate) hands: Hands,
    /// How much of a processor the pod's restarts and probes may take.
    pub(crate) throttle: Rc<Throttle>,
}

/// Where a pod's state directory has what a sandbox of the Sandbox API shares with its containers; `delete` removes what a killed
/// server leaves.
#[must_use]
pub fn sandbox_directory(state: &Path) -> PathBuf {
    state.join("sandbox")
}

/// The directory of a pod's console sockets. Its path is short enough for a socket address, and `delete` knows it: it removes
/// what a killed server leaves. `socket` is the server's own.
#[must_use]
pub fn console_directory(socket: &Path) -> PathBuf {
    let name = socket.file_name().unwrap_or_default().to_string_lossy();
    // The name is a hash: 16 digits tell the pods of a node apart.
    let short: String = name.chars().take(16).collect();
    Path::new(STATE_ROOT).join(format!("pty-{short}"))
}
