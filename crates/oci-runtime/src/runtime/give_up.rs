//! Calls that are given up: nothing waits for their result any more (T10).
//!
//! Owns the word that goes from who gives up to the call. What a call does then is `call`, what it has left behind `undo`.

use std::cell::Cell;
use std::rc::Rc;

use tokio::sync::Notify;

/// Ends all calls of the handles that have it, those under way and later ones. Clones are one.
#[derive(Clone, Debug, Default)]
pub struct GiveUp(Rc<Given>);

#[derive(Debug, Default)]
struct Given {
    is_given: Cell<bool>,
    notify: Notify,
}

impl GiveUp {
    /// Nothing waits for the calls any more.
    pub fn now(&self) {
        self.0.is_given.set(true);
        self.0.notify.notify_waiters();
    }

    /// Whether they are given up.
    pub fn is_given(&self) -> bool {
        self.0.is_given.get()
    }

    /// Waits for that.
    pub async fn given(&self) {
        let notified = self.0.notify.notified();
        if !self.is_given() {
            notified.await;
        }
    }
}
