//! Why a sandbox of the Sandbox API cannot be made, or cannot have a container.
//!
//! Owns the words for the caller. Decides nothing.

use std::io;
use std::path::PathBuf;

use own_processes::{NotUnderstood, PinsError};
use thiserror::Error;

/// The message that describes a pod.
pub(super) const TYPE: &str = "runtime.v1.PodSandboxConfig";

/// What a pod of the Sandbox API asks for and cannot have.
#[derive(Debug, Error)]
pub(crate) enum SandboxError {
    #[error("options of type {type_url:?} are not known: use {TYPE}")]
    OtherOptions { type_url: String },
    #[error("the {TYPE} cannot be read")]
    Options,
    /// podshim never puts such a pod into the node's network instead.
    #[error(
        "the pod's namespace_options.network is POD and netns_path is \"\": name the pod's network namespace, or set NODE"
    )]
    NoNetwork,
    /// As runc refuses a hostname without a uts namespace.
    #[error(
        "the pod's hostname is {hostname:?} and it has the node's network, and with that the node's name: leave hostname empty, or \
         set namespace_options.network to POD"
    )]
    HostnameOfNode { hostname: String },
    #[error(
        "a user namespace (hostUsers: false) with the node's network is not possible with sandboxer = \"shim\": use a runtime with \
         sandboxer = \"podsandbox\" for this pod"
    )]
    UserWithNodesNetwork,
    #[error("its user namespace has no user or no group 0")]
    UserWithoutRoot,
    #[error("its user namespace can only be the pod's or the node's")]
    UnknownUser,
    #[error(transparent)]
    Pins(PinsError),
    #[error("podshim cannot make process 1 of the pod's shared pid namespace: {0}")]
    Process1(NotUnderstood),
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error("the pod's sandbox has ended")]
    HasEnded,
    #[error("cannot correct its config.json: {0}")]
    Correct(io::Error),
    #[error("it joins the pod's pid namespace, whose process 1 has ended")]
    NoProcess1,
    #[error("it joins the pod's {kind} namespace, and the pod has none")]
    NoNamespace { kind: String },
    #[error("its spec joins {}, a namespace of no process", path.display())]
    OfNoProcess { path: PathBuf },
}
