//! Changes a container's `config.json` before the OCI runtime reads it.
//!
//! Owns that the file is whole at every moment. What is changed is its callers' decision.

use control_api::replace::replace;
use oci_runtime::bundle::Bundle;
use serde_json::Value;

/// Changes the spec. What `change` does not touch stays as it is, also fields that podshim does not know.
///
/// # Errors
/// The file cannot be read or written, or is no JSON.
pub(crate) fn edit(bundle: &Bundle, change: impl FnOnce(&mut Value)) -> std::io::Result<()> {
    let path = bundle.path().join("config.json");
    let mut spec: Value = serde_json::from_slice(&std::fs::read(&path)?)?;
    change(&mut spec);
    // A rename: the runtime must read either the old file or the new one.
    let new = bundle.path().join(".config.json.new");
    replace(&path, &new, &serde_json::to_vec(&spec)?)
}
