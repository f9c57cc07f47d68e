//! Changes to a container's `config.json` before the runtime reads it. Owns that it is whole at every moment; what is
//! changed, and why, is the callers'.

use oci_runtime::bundle::Bundle;
use serde_json::Value;

/// Replaces the spec by what `change` makes of it. Everything that `change` leaves alone stays as it is, fields that
/// podshim does not know included.
///
/// # Errors
/// The file cannot be read or written, or is no JSON.
pub(crate) fn edit(bundle: &Bundle, change: impl FnOnce(&mut Value)) -> std::io::Result<()> {
    let path = bundle.path().join("config.json");
    let mut spec: Value = serde_json::from_slice(&std::fs::read(&path)?)?;
    change(&mut spec);
    // Whole or not at all: the runtime reads it next.
    let new = bundle.path().join(".config.json.new");
    std::fs::write(&new, serde_json::to_vec(&spec)?)?;
    std::fs::rename(&new, &path)
}
