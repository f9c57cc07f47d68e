//! Changes a container's `config.json` before the OCI runtime reads it.
//!
//! Owns that the file is whole at every moment. What is changed is its callers' decision.

use std::io;

use node_state::replace::replace;
use oci_runtime::bundle::Bundle;
use serde_json::Value;

/// Changes the spec. What `change` does not touch stays as it is, also fields that podshim does not know.
///
/// # Errors
/// The file cannot be read or written, or is no JSON; or `change`'s own. Then the file is as it was.
pub(crate) fn edit(bundle: &Bundle, change: impl FnOnce(&mut Value) -> io::Result<()>) -> io::Result<()> {
    let path = bundle.path().join("config.json");
    let mut spec: Value = serde_json::from_slice(&std::fs::read(&path)?)?;
    change(&mut spec)?;
    // A rename: the runtime must read either the old file or the new one.
    let new = bundle.path().join(".config.json.new");
    replace(&path, &new, &serde_json::to_vec(&spec)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CONTRACT §5: half of a change could leave a container without namespaces, that is in the node's.
    #[test]
    fn a_change_that_fails_leaves_the_file_as_it_was() {
        let directory = tempfile::tempdir().unwrap();
        let (bundle, file) = (Bundle::new(directory.path()), directory.path().join("config.json"));
        let text = "{\n  \"linux\": {\"namespaces\": [{\"type\": \"mount\"}]}}\n";
        std::fs::write(&file, text).unwrap();
        let error = edit(&bundle, |spec| {
            spec["linux"].take();
            Err(io::Error::other("it joins the pod's time namespace"))
        })
        .unwrap_err();
        assert_eq!(error.to_string(), "it joins the pod's time namespace");
        assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
    }
}
