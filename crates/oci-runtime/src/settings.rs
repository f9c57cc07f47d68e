//! What a caller can choose for a runtime and for a create.
//!
//! Owns these words. Knows neither a runtime's arguments nor who makes a sandbox.

use std::path::Path;

use own_processes::SessionKeyring;

/// What environment the runtime is called with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum CallEnvironment {
    /// The shim's.
    #[default]
    Shims,
    /// The shim's, and for a Go program that ends soon: it collects no garbage and uses one processor. The container does not
    /// have it, but a hook inherits it from runc.
    BriefGoProgram,
}

impl CallEnvironment {
    /// Its variables. What the shim's environment has already stays.
    pub(crate) fn variables(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::Shims => &[],
            Self::BriefGoProgram => &[("GOGC", "off"), ("GOMAXPROCS", "1")],
        }
    }
}

/// How the container's root becomes `/` (option NoPivotRoot).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RootSwitch {
    /// `pivot_root(2)`.
    #[default]
    PivotRoot,
    /// `MS_MOVE` and chroot, for a root on a ramdisk.
    NoPivotRoot,
}

/// Settings of a `create`, apart from the bundle.
#[derive(Debug, Clone, Copy, Default)]
pub struct CreateOptions<'a> {
    /// The socket that receives the pty master, for a process with a terminal.
    pub console_socket: Option<&'a Path>,
    /// How the root is switched.
    pub root_switch: RootSwitch,
    /// Which session keyring is used.
    pub session_keyring: SessionKeyring,
}
