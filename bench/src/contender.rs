//! The contenders that are measured.

use e2e::Runtime;

/// A shim, or the runtime alone, that a question measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Contender {
    /// This project's shim.
    Podshim,
    /// The shim that comes with containerd.
    GoShim,
    /// The OCI runtime without containerd and without a shim: the floor.
    Runtime,
}

/// Both shims.
pub const SHIMS: [Contender; 2] = [Contender::Podshim, Contender::GoShim];

/// Both shims, and the runtime alone.
pub const ALL: [Contender; 3] = [Contender::Podshim, Contender::GoShim, Contender::Runtime];

impl Contender {
    /// The name in tables.
    pub fn label(self) -> &'static str {
        match self {
            Contender::Podshim => "podshim",
            Contender::GoShim => "containerd's shim",
            Contender::Runtime => "runtime alone",
        }
    }

    /// The runtime handler of a shim; `None` for the runtime alone.
    pub fn handler(self) -> Option<Runtime> {
        match self {
            Contender::Podshim => Some(Runtime::Podshim),
            Contender::GoShim => Some(Runtime::Runc),
            Contender::Runtime => None,
        }
    }
}
