//! What the shim makes itself instead of the OCI runtime: the sandbox of a pod, and the processes of gates and hooks (`exec`).
//!
//! A sandbox is a process that does nothing: it keeps namespaces, and reaps. The OCI runtime takes a hundred milliseconds
//! of a processor for it, and its program comes from an image. This takes a few, and its program is a part of the shim.
//! What a sandbox's spec asks for is done completely, or the OCI runtime does it (`request`). Callers see what they see of
//! any container: a pid, namespaces, a cgroup, an exit.

mod barrier;
mod capabilities;
mod cgroups_path;
mod child_setup;
mod clone_into_cgroup;
pub mod exec;
mod field;
mod groups;
mod id_map;
mod keyring;
mod limits;
mod namespace;
mod our_memory;
mod owned;
mod pins;
mod program;
mod record;
mod request;
mod scope;
mod steps;
mod systemd;

pub use self::keyring::SessionKeyring;
pub use barrier::{Barrier, barrier};
pub use cgroups_path::{CgroupsPath, Scope, scope_at, slice_path};
pub use child_setup::{CgroupEntry, ChildSetup, MakeError};
pub use field::NotUnderstood;
pub use groups::{Entrances, Groups};
pub use limits::{CpuTime, Limits, understood};
pub use pins::{Pins, PinsError, PinsRequest, PodRoot, Sharing};
pub use record::{Record, is_recorded};
pub use request::{RUNTIMES, SandboxRequest};
pub use scope::{ScopeError, end as end_scope};
pub use systemd::SystemdError;
