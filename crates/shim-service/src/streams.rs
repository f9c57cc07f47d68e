//! The stdio of a container or an exec as containerd names it. Owns the strings as they came.

use oci_runtime::stdio::{StdioPaths, StreamMode};

/// containerd's stdio strings, kept as they came: State must return them (CRI reopens the fifos on reload).
#[derive(Clone, Debug, Default)]
pub(crate) struct StreamAddresses {
    pub(crate) stdin: String,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) mode: StreamMode,
}

impl StreamAddresses {
    pub(crate) fn paths(&self) -> StdioPaths {
        StdioPaths {
            stdin: self.stdin.clone(),
            stdout: self.stdout.clone(),
            stderr: self.stderr.clone(),
            mode: self.mode,
        }
    }

    pub(crate) fn has_terminal(&self) -> bool {
        self.mode == StreamMode::Terminal
    }
}
