//! `-info`: containerd 2.x asks for it before it uses a runtime (CONTRACT §8).
//!
//! Owns the answer, which needs no pod and no containerd: the name and version of this shim, and the features of the
//! OCI runtime behind it. Without those features the kubelet refuses pods with user namespaces or recursive read-only
//! mounts.

use std::io;
use std::path::{Path, PathBuf};

use containerd_shim_protos::protobuf::well_known_types::any::Any;
use containerd_shim_protos::protobuf::{self, Message};
use containerd_shim_protos::types::introspection::{RuntimeInfo, RuntimeVersion};
use node_state::paths::NODE_FILE;
use oci_runtime::runtime::features;
use processes::reaper::Reaper;
use shim_service::node;
use shim_service::options::{OptionsError, runtime_options};
use thiserror::Error;
use tokio::runtime;
use tokio::task::LocalSet;

use crate::stdin;

/// The name under which containerd's configuration knows this runtime.
pub const RUNTIME_NAME: &str = "io.containerd.podshim.v2";
/// The version of this build.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
/// The commit of this build, if the build sets `PODSHIM_REVISION`.
pub const REVISION: Option<&str> = option_env!("PODSHIM_REVISION");
/// The name that containerd's typeurl gives the runtime-spec's features document; its value is JSON.
const FEATURES_TYPE: &str = "types.containerd.io/opencontainers/runtime-spec/1/features/Features";

/// Why the runtime cannot be described.
#[derive(Debug, Error)]
pub enum InfoError {
    /// Standard input is not the message that containerd sends there.
    #[error("standard input is not a google.protobuf.Any with runtime options: {0}")]
    NotAny(protobuf::Error),
    /// The options cannot be parsed.
    #[error("{0}")]
    Options(#[from] OptionsError),
    /// The OCI runtime that the options select is missing.
    #[error("cannot run the OCI runtime {binary}: {source}; install it, or correct the option BinaryName", binary = binary.display())]
    Runtime {
        /// The binary.
        binary: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The system refused something that is needed to run the OCI runtime.
    #[error("cannot run processes: {0}")]
    Setup(io::Error),
    /// The answer cannot be written as protobuf.
    #[error("cannot encode the answer: {0}")]
    Encode(protobuf::Error),
}

/// The serialized `containerd.types.RuntimeInfo` for the options on standard input, if there are any.
///
/// # Errors
///
/// [`InfoError`]. An OCI runtime without a `features` command is no error, as with containerd's own shim.
pub fn run() -> Result<Vec<u8>, InfoError> {
    let options = options_in(&stdin::read())?;
    // As with a create, a mistake in the node's file leaves the runtime of containerd's configuration.
    let node = node::read(Path::new(NODE_FILE)).unwrap_or_default();
    let mut named = runtime_options(options.as_ref())?;
    named.binary_name = named.binary_name.or_else(|| node.oci_runtime().map(str::to_owned));
    let binary = named.binary().to_owned();
    let features = features_of(&binary)?;
    runtime_info(options, features).write_to_bytes().map_err(InfoError::Encode)
}

/// containerd 2.3 may ask without options; then standard input is empty.
fn options_in(input: &[u8]) -> Result<Option<Any>, InfoError> {
    if input.is_empty() {
        return Ok(None);
    }
    Any::parse_from_bytes(input).map(Some).map_err(InfoError::NotAny)
}

fn features_of(binary: &Path) -> Result<Option<Vec<u8>>, InfoError> {
    let runtime = runtime::Builder::new_current_thread().enable_all().build().map_err(InfoError::Setup)?;
    LocalSet::new().block_on(&runtime, async {
        let reaper = Reaper::start().map_err(InfoError::Setup)?;
        let failed = |source| InfoError::Runtime { binary: binary.to_owned(), source };
        features(&reaper, binary).await.map_err(failed)
    })
}

fn runtime_info(options: Option<Any>, features: Option<Vec<u8>>) -> RuntimeInfo {
    let version = RuntimeVersion {
        version: VERSION.to_owned(),
        revision: REVISION.unwrap_or_default().to_owned(),
        ..RuntimeVersion::default()
    };
    let features = features.map(|value| Any { type_url: FEATURES_TYPE.to_owned(), value, ..Any::default() });
    RuntimeInfo {
        name: RUNTIME_NAME.to_owned(),
        version: Some(version).into(),
        options: options.into(),
        features: features.into(),
        ..RuntimeInfo::default()
    }
}
