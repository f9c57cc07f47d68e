//! Who makes a container's processes. Chosen once, when it is created.

use std::rc::Rc;

use own_processes::SandboxRequest;

/// Who makes the processes of a container.
#[derive(Debug, Clone)]
pub enum Maker {
    /// The OCI runtime.
    Runtime,
    /// podshim: a sandbox without the OCI runtime.
    Own(Rc<SandboxRequest>),
    /// No one: of a sandbox of the Sandbox API there may be mounts alone (CONTRACT §5).
    Pins,
}
