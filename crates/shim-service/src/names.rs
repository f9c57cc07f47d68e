//! The names of a pod and its containers, for the log: people know names, log lines have ids of 64 letters.
//!
//! Owns the one static of the crate: the writer of the log sees lines, not pods, and a process serves one pod.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The bound on the ids; under ctr a group may have any number of containers.
const KEPT: usize = 256;

static NAMES: Mutex<Names> = Mutex::new(Names { pod: String::new(), containers: BTreeMap::new() });

/// The current names.
#[derive(Debug, Default)]
pub struct Names {
    pod: String,
    containers: BTreeMap<String, String>,
}

impl Names {
    /// The pod's name as `namespace/name`; empty until its sandbox is created.
    pub fn pod(&self) -> &str {
        &self.pod
    }

    /// The name of a container.
    pub fn of(&self, id: &str) -> Option<&str> {
        self.containers.get(id).map(String::as_str)
    }

    /// The text with each known id replaced by its name.
    pub fn with_names(&self, text: &str) -> String {
        let known = |text: String, (id, name): (&String, &String)| match text.contains(id.as_str()) {
            true => text.replace(id.as_str(), name),
            false => text,
        };
        self.containers.iter().fold(text.to_owned(), known)
    }

    /// Takes the pod's name; without CRI there is none.
    pub(crate) fn learn_pod(&mut self, namespace: &str, name: &str) {
        if !name.is_empty() {
            self.pod = format!("{namespace}/{name}");
        }
    }

    /// Adds a container's name, unless it is its id.
    pub(crate) fn add_container(&mut self, id: &str, name: &str) {
        if id != name && self.containers.len() < KEPT {
            self.containers.insert(id.to_owned(), name.to_owned());
        }
    }

    /// Removes a deleted container's name.
    pub(crate) fn remove_container(&mut self, id: &str) {
        self.containers.remove(id);
    }
}

/// The names, locked: hold the lock for no longer than one log line takes.
pub fn names() -> MutexGuard<'static, Names> {
    NAMES.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_replaced_by_names() {
        let mut names = Names::default();
        names.learn_pod("", "");
        assert_eq!(names.pod(), "");
        names.learn_pod("shop", "cart-1");
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
