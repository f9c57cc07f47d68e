//! What every container of the pod shares: read when one is created or started, never changed.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use oci_runtime::stdio::LookPace;

use crate::throttle::Throttle;

/// What is the same for every container of the pod.
#[derive(Clone, Debug)]
pub(crate) struct PodContext {
    /// containerd's namespace.
    pub(crate) namespace: Rc<str>,
    /// The node's configuration of podshim.
    pub(crate) node_file: Rc<Path>,
    /// While it is there, the node is being drained (N7).
    pub(crate) draining_file: Rc<Path>,
    /// Where console sockets are made.
    pub(crate) console_directory: Rc<Path>,
    /// How fast lines are looked at for `log:` gates.
    pub(crate) looks: LookPace,
    /// How much of a processor restarts and probes may take.
    pub(crate) throttle: Rc<Throttle>,
}

/// Where a pod's console sockets are made, while there are any: short enough for a socket address, and known to
/// `delete`, which removes what a killed server leaves. `socket` is the server's own.
#[must_use]
pub fn console_directory(socket: &Path) -> PathBuf {
    let name = socket.file_name().unwrap_or_default().to_string_lossy();
    // Of a hash: enough to tell the pods of a node apart.
    let short: String = name.chars().take(16).collect();
    Path::new("/run/podshim").join(format!("pty-{short}"))
}
