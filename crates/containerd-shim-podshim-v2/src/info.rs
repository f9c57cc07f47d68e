//! `-info`: what containerd 2.x asks before it uses a runtime (CONTRACT §8).
//!
//! Owns the answer, which needs no pod and no containerd.

use containerd_shim_protos::protobuf::{self, Message};
use containerd_shim_protos::types::introspection::{RuntimeInfo, RuntimeVersion};

/// The name under which containerd's configuration knows this runtime.
pub const RUNTIME_NAME: &str = "io.containerd.podshim.v2";
/// The version of this build.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The serialized `containerd.types.RuntimeInfo`.
///
/// # Errors
///
/// Those of protobuf's encoder.
pub fn runtime_info() -> protobuf::Result<Vec<u8>> {
    let version = RuntimeVersion { version: VERSION.to_owned(), ..RuntimeVersion::default() };
    let info = RuntimeInfo {
        name: RUNTIME_NAME.to_owned(),
        version: Some(version).into(),
        ..RuntimeInfo::default()
    };
    info.write_to_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_names_runtime_and_version() {
        let info = RuntimeInfo::parse_from_bytes(&runtime_info().unwrap()).unwrap();
        assert_eq!((info.name.as_str(), info.version.version.as_str()), (RUNTIME_NAME, VERSION));
    }
}
