//! A new container's spec as a value, from its Create to its maker.
//!
//! Owns the one read of `config.json` and the one write, and that the file is whole at every moment. What is changed is its callers'
//! decision. May never write a spec that no one has changed (S1).

use std::fs;
use std::io;

use node_state::replace::replace;
use oci_runtime::bundle::{Bundle, BundleError};
use oci_runtime::spec::Spec;
use serde::Deserialize;
use serde_json::Value;

/// The spec of a container that is being created.
#[derive(Debug)]
pub(crate) struct SpecDraft {
    bundle: Bundle,
    /// What podshim reads of `content`.
    spec: Spec,
    content: Content,
    is_changed: bool,
}

/// A tree takes four times the memory of its text, and of most specs nothing is changed.
#[derive(Debug)]
enum Content {
    Text(Vec<u8>),
    Tree(Value),
}

impl SpecDraft {
    /// The spec as containerd has written it.
    ///
    /// # Errors
    /// It cannot be read, or is no spec.
    pub(crate) fn read(bundle: &Bundle) -> Result<Self, BundleError> {
        let path = bundle.spec_path();
        let text = fs::read(&path).map_err(|source| BundleError::Read { path: path.clone(), source })?;
        let spec = serde_json::from_slice(&text)
            .map_err(|error| BundleError::Malformed { path, reason: error.to_string() })?;
        Ok(Self { bundle: bundle.clone(), spec, content: Content::Text(text), is_changed: false })
    }

    /// One of podshim's own, which the bundle has not yet.
    ///
    /// # Errors
    /// It is no spec.
    pub(crate) fn new(bundle: &Bundle, tree: Value) -> io::Result<Self> {
        let spec = Spec::deserialize(&tree)?;
        Ok(Self { bundle: bundle.clone(), spec, content: Content::Tree(tree), is_changed: true })
    }

    /// What podshim reads of it, as it is now.
    pub(crate) fn spec(&self) -> &Spec {
        &self.spec
    }

    /// All of it, as it is now.
    ///
    /// # Errors
    /// A part of it that podshim does not read is no JSON.
    pub(crate) fn tree(&mut self) -> io::Result<&Value> {
        self.parsed().map(|tree| &*tree)
    }

    /// Changes it. What `change` does not touch stays as it is, also fields that podshim does not know. Of a change that fails no draft
    /// is left: half of it could leave a container without namespaces, that is in the node's (CONTRACT §5).
    ///
    /// # Errors
    /// `change`'s own, or as [`Self::tree`].
    pub(crate) fn changed(mut self, change: impl FnOnce(&mut Value) -> io::Result<()>) -> io::Result<Self> {
        let tree = self.parsed()?;
        change(tree)?;
        self.spec = Spec::deserialize(&*tree)?;
        Ok(Self { is_changed: true, ..self })
    }

    fn parsed(&mut self) -> io::Result<&mut Value> {
        if let Content::Text(text) = &self.content {
            self.content = Content::Tree(serde_json::from_slice(text)?);
        }
        match &mut self.content {
            Content::Tree(tree) => Ok(tree),
            Content::Text(_) => Err(io::Error::other("it is not parsed")),
        }
    }

    /// Gives it to the maker: nothing changes it any more.
    ///
    /// # Errors
    /// The file cannot be written. Then it is as it was.
    pub(crate) fn write(mut self) -> io::Result<()> {
        if !self.is_changed {
            return Ok(());
        }
        let text = serde_json::to_vec(self.tree()?)?;
        // A rename: the runtime must read either the old file or the new one.
        let path = self.bundle.spec_path();
        replace(&path, &self.bundle.path().join(".config.json.new"), &text).map_err(|error| {
            io::Error::new(error.kind(), format!("cannot write {}: {error}", path.display()))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn bundle(text: &str) -> (tempfile::TempDir, PathBuf, SpecDraft) {
        let directory = tempfile::tempdir().unwrap();
        let bundle = Bundle::new(directory.path());
        fs::write(bundle.spec_path(), text).unwrap();
        let draft = SpecDraft::read(&bundle).unwrap();
        (directory, bundle.spec_path(), draft)
    }

    /// CONTRACT §5: half of a change could leave a container without namespaces, that is in the node's.
    #[test]
    fn of_a_change_that_fails_nothing_is_left() {
        let text = "{\n  \"linux\": {\"namespaces\": [{\"type\": \"mount\"}]}}\n";
        let (_directory, file, draft) = bundle(text);
        let changed = draft.changed(|spec| {
            spec["linux"].take();
            Err(io::Error::other("it joins the pod's time namespace"))
        });
        assert_eq!(changed.unwrap_err().to_string(), "it joins the pod's time namespace");
        assert_eq!(fs::read_to_string(file).unwrap(), text);
    }

    /// S1: the OCI runtime gets the spec as containerd has written it, and all changes of it in one file.
    #[test]
    fn it_is_written_once_and_only_if_it_was_changed() {
        let text = r#"{ "ociVersion": "9", "annotations": {"a": "b"} }"#;
        let (_directory, file, mut draft) = bundle(text);
        assert_eq!(draft.tree().unwrap()["ociVersion"], "9");
        draft.write().unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), text);

        let (_directory, file, mut draft) = bundle(text);
        for (key, value) in [("c", "d"), ("a", "e")] {
            draft = draft
                .changed(|spec| {
                    spec["annotations"][key] = value.into();
                    Ok(())
                })
                .unwrap();
            assert_eq!(draft.spec().annotations[key], value, "what podshim reads is what is there");
        }
        assert_eq!(fs::read_to_string(&file).unwrap(), text, "not yet");
        draft.write().unwrap();
        let expected = r#"{"annotations":{"a":"e","c":"d"},"ociVersion":"9"}"#;
        assert_eq!(fs::read_to_string(&file).unwrap(), expected);
    }
}
