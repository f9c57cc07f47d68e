//! What the log calls a pod and its containers: people know names, lines have ids of 64 letters.
//!
//! Owns the names, for the writer of the log, which sees each line and knows nothing of pods. One pod a process.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// So many ids are known at most; under ctr a group may have any number.
const KEPT: usize = 256;

static NAMES: Mutex<Names> = Mutex::new(Names { pod: String::new(), containers: BTreeMap::new() });

/// The names of now.
#[derive(Debug, Default)]
pub struct Names {
    pod: String,
    containers: BTreeMap<String, String>,
}

impl Names {
    /// The pod's, as `namespace/name`; empty until its sandbox is created.
    pub fn pod(&self) -> &str {
        &self.pod
    }

    /// The name of a container.
    pub fn of(&self, id: &str) -> Option<&str> {
        self.containers.get(id).map(String::as_str)
    }

    /// A text with names in the place of ids.
    pub fn with_names(&self, text: &str) -> String {
        let known = |text: String, (id, name): (&String, &String)| match text.contains(id.as_str()) {
            true => text.replace(id.as_str(), name),
            false => text,
        };
        self.containers.iter().fold(text.to_owned(), known)
    }

    /// The pod is called so.
    pub(crate) fn set_pod(&mut self, namespace: &str, name: &str) {
        if !name.is_empty() {
            self.pod = format!("{namespace}/{name}");
        }
    }

    /// A container is created. One whose name is its id has none.
    pub(crate) fn add_container(&mut self, id: &str, name: &str) {
        if id != name && self.containers.len() < KEPT {
            self.containers.insert(id.to_owned(), name.to_owned());
        }
    }

    /// A container is deleted.
    pub(crate) fn remove_container(&mut self, id: &str) {
        self.containers.remove(id);
    }
}

/// The names, locked: hold them for no longer than a line takes.
pub fn names() -> MutexGuard<'static, Names> {
    NAMES.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_replaced_by_names() {
        let mut names = Names::default();
        names.set_pod("", "");
        assert_eq!(names.pod(), "");
        names.set_pod("shop", "cart-1");
        names.add_container("0123abcd", "app");
        names.add_container("task", "task");
        assert_eq!((names.pod(), names.of("0123abcd"), names.of("task")), ("shop/cart-1", Some("app"), None));
        assert_eq!(names.with_names("container 0123abcd: gone"), "container app: gone");
        names.remove_container("0123abcd");
        assert_eq!(names.with_names("container 0123abcd: gone"), "container 0123abcd: gone");
        for number in 0..2 * KEPT {
            names.add_container(&format!("id-{number}"), "app");
        }
        assert_eq!(names.containers.len(), KEPT);
    }
}
