//! What Create, Exec and Checkpoint requests ask for beyond what the pod's state machine needs.
//!
//! Owns these types, which handlers fill and `launch` and `checkpoint` read.

use std::path::PathBuf;

use mounts::RootfsMount;
use oci_runtime::runtime::{CheckpointOptions, RootSwitch};
use own_processes::SessionKeyring;
use pod_lifecycle::Origin;
use streams::stdio::StreamOwner;

use crate::options::RuntimeOptions;
use crate::streams::StreamAddresses;

/// A Create request, without its id.
#[derive(Debug)]
pub(crate) struct CreateDetails {
    pub(crate) bundle: PathBuf,
    pub(crate) rootfs: Vec<RootfsMount>,
    pub(crate) streams: StreamAddresses,
    pub(crate) options: RuntimeOptions,
    /// The checkpoint to restore it from, if there is one.
    pub(crate) checkpoint: Option<CheckpointImage>,
}

/// A Checkpoint request, without its id.
#[derive(Debug)]
pub(crate) struct CheckpointDetails {
    /// The directory that the images are written to.
    pub(crate) path: PathBuf,
    pub(crate) options: CheckpointOptions,
}

/// An Exec request, without its ids.
#[derive(Debug)]
pub(crate) struct ExecDetails {
    /// The OCI process as JSON.
    pub(crate) process: Vec<u8>,
    pub(crate) streams: StreamAddresses,
}

/// The checkpoint that a container is restored from.
#[derive(Debug)]
pub(crate) struct CheckpointImage {
    pub(crate) path: PathBuf,
    /// The earlier checkpoint that it builds upon.
    pub(crate) parent: Option<PathBuf>,
}

impl CreateDetails {
    pub(crate) fn origin(&self) -> Origin {
        if self.checkpoint.is_some() { Origin::Checkpoint } else { Origin::Program }
    }

    pub(crate) fn root_switch(&self) -> RootSwitch {
        if self.options.no_pivot_root { RootSwitch::NoPivotRoot } else { RootSwitch::PivotRoot }
    }

    pub(crate) fn session_keyring(&self) -> SessionKeyring {
        if self.options.no_new_keyring { SessionKeyring::Inherited } else { SessionKeyring::New }
    }

    pub(crate) fn stream_owner(&self) -> StreamOwner {
        StreamOwner { user: self.options.io_uid, group: self.options.io_gid }
    }
}
