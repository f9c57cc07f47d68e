//! What the readers of the page see of each pod, and which of it is new to a reader.
//!
//! Owns that the newest state wins: a reader that is slow skips states, and nothing waits for it. Asks no shim.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::now_ms;

/// How many readers there may be at once.
const VIEWERS: usize = 24;

/// The pods as they are shown.
#[derive(Debug, Default)]
pub(super) struct Board {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// By their keys.
    pods: BTreeMap<String, Shown>,
    /// How many changes there were.
    version: u64,
    viewers: usize,
    listing: Listing,
}

/// Whether all pods of the node have been found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Listing {
    #[default]
    Begun,
    Complete,
}

#[derive(Clone, Debug)]
struct Shown {
    version: u64,
    text: Arc<str>,
}

/// What a reader has got.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pods: BTreeMap<String, u64>,
    listing: Listing,
}

/// A reader. While there is none, no shim is asked.
#[derive(Debug)]
pub(super) struct Viewer<'a> {
    board: &'a Board,
}

impl Board {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A reader that begins, if there is a place for it.
    pub(super) fn viewer(&self) -> Option<Viewer<'_>> {
        let mut state = self.state();
        if state.viewers == VIEWERS {
            return None;
        }
        state.viewers += 1;
        self.changed.notify_all();
        Some(Viewer { board: self })
    }

    /// Whether there is a reader.
    pub(super) fn has_viewers(&self) -> bool {
        self.state().viewers > 0
    }

    /// Waits for a reader.
    pub(super) fn wait_for_viewer(&self) {
        let state = self.state();
        drop(
            self.changed
                .wait_while(state, |state| state.viewers == 0)
                .unwrap_or_else(PoisonError::into_inner),
        );
    }

    /// A pod is shown so from now on. `text` is JSON.
    pub(super) fn show(&self, key: &str, text: &str) {
        let mut state = self.state();
        if state.pods.get(key).is_some_and(|shown| &*shown.text == text) {
            return;
        }
        state.version += 1;
        let shown = Shown { version: state.version, text: text.into() };
        state.pods.insert(key.to_owned(), shown);
        self.changed.notify_all();
    }

    /// A pod is gone.
    pub(super) fn remove(&self, key: &str) {
        self.state().pods.remove(key);
        self.changed.notify_all();
    }

    /// Every pod of the node is shown.
    pub(super) fn complete(&self) {
        if std::mem::replace(&mut self.state().listing, Listing::Complete) == Listing::Begun {
            self.changed.notify_all();
        }
    }

    /// No pod is followed any more.
    pub(super) fn clear(&self) {
        let mut state = self.state();
        state.pods.clear();
        state.listing = Listing::Begun;
    }
}

impl Viewer<'_> {
    /// What is new to the reader, as server-sent events; `None` if there is nothing for so long.
    pub(super) fn next(&self, seen: &mut Seen, most: Duration) -> Option<String> {
        let state = self.board.state();
        let waited = self.board.changed.wait_timeout_while(state, most, |state| !seen.is_behind(state));
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let text = seen.catch_up(&state);
        (!text.is_empty()).then_some(text)
    }
}

impl Drop for Viewer<'_> {
    fn drop(&mut self) {
        self.board.state().viewers -= 1;
    }
}

impl Seen {
    fn is_behind(&self, state: &State) -> bool {
        self.listing != state.listing
            || self.pods.len() != state.pods.len()
            || state.pods.iter().any(|(id, shown)| self.pods.get(id) != Some(&shown.version))
    }

    fn catch_up(&mut self, state: &State) -> String {
        let mut text = String::new();
        let now = now_ms();
        // Writing to a string cannot fail.
        for (id, shown) in &state.pods {
            if self.pods.insert(id.clone(), shown.version) != Some(shown.version) {
                let _ = write!(text, "event: pod\ndata: {{\"now\":{now},\"pod\":{}}}\n\n", shown.text);
            }
        }
        self.pods.retain(|id, _| {
            let is_there = state.pods.contains_key(id);
            if !is_there {
                let _ = write!(text, "event: gone\ndata: {}\n\n", serde_json::Value::from(id.as_str()));
            }
            is_there
        });
        if self.listing != state.listing && state.listing == Listing::Complete {
            text += "event: all\ndata: {}\n\n";
        }
        self.listing = state.listing;
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOON: Duration = Duration::from_millis(10);

    #[test]
    fn a_reader_gets_the_newest_state_once() {
        let board = Board::default();
        let (viewer, mut seen) = (board.viewer().unwrap(), Seen::default());
        assert_eq!(viewer.next(&mut seen, SOON), None);
        board.show("a", "1");
        board.show("a", "2");
        board.complete();
        let text = viewer.next(&mut seen, SOON).unwrap();
        assert!(
            text.starts_with("event: pod\ndata: {\"now\":") && text.contains(",\"pod\":2}\n\n"),
            "{text}"
        );
        assert!(
            text.ends_with("\n\nevent: all\ndata: {}\n\n") && text.matches("event:").count() == 2,
            "{text}"
        );
        board.show("a", "2");
        assert_eq!(viewer.next(&mut seen, SOON), None);
        board.remove("a");
        assert_eq!(viewer.next(&mut seen, SOON).unwrap(), "event: gone\ndata: \"a\"\n\n");
        let mut late = Seen::default();
        assert_eq!(viewer.next(&mut late, SOON).unwrap(), "event: all\ndata: {}\n\n");
    }

    #[test]
    fn without_a_reader_nothing_is_followed() {
        let board = Board::default();
        assert!(!board.has_viewers());
        let viewer = board.viewer().unwrap();
        board.wait_for_viewer();
        assert!(board.has_viewers());
        drop(viewer);
        assert!(!board.has_viewers());
    }
}
