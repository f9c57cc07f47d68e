//! Names of things: containers, execs, requests and operations. Knows nothing of what they name.

use std::fmt;
use std::sync::Arc;

/// containerd's id of a container (a task). Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ContainerId(Arc<str>);

/// The caller's id of an exec within one container. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ExecId(Arc<str>);

macro_rules! id_type {
    ($name:ident) => {
        impl $name {
            /// The id as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }
        impl From<&str> for $name {
            fn from(id: &str) -> Self {
                Self(id.into())
            }
        }
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id_type!(ContainerId);

id_type!(ExecId);

/// The driver's handle for a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// The id of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OpId(pub u64);

/// A process of the pod: a container's init, or one of its execs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Target {
    /// The container.
    pub container: ContainerId,
    /// `None` for the container's init.
    pub exec: Option<ExecId>,
}

impl Target {
    /// The init process of a container.
    pub fn init(container: ContainerId) -> Self {
        Self { container, exec: None }
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.exec {
            None => write!(f, "container {}", self.container),
            Some(exec) => write!(f, "exec {exec} of container {}", self.container),
        }
    }
}
