//! The stdio paths of a container or an exec. Owns containerd's strings, which may never change on their way through.

use streams::stdio::{StdioPaths, StreamMode};

/// containerd's stdio strings as they came: State returns them, and CRI reopens the fifos by them after its restart.
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
