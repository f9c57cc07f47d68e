//! How far a movement has got, as all hands have it: its own, and one that stands in for that while it is away.
//!
//! Owns what the one that moves has to know. A byte is moved in one turn of its tenant's (`hand::tenant`), so none comes twice, and none
//! is lost or out of its order, whichever hand moves it and whenever the other one comes back.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use threads::hand::{Tenant, tenant};

use super::line_end::OpenLine;

/// One movement's.
#[derive(Debug)]
pub(super) struct Flow {
    progress: Mutex<Progress>,
    /// Whether it leaves its sink in the middle of a line; none for stdin, whose lines are one writer's.
    pub(super) open: Option<Arc<OpenLine>>,
    /// That of the movement that its sink leads into, if others write to that too.
    pub(super) shared: Weak<Flow>,
    is_watched: AtomicBool,
    /// In whose turns it is moved.
    pub(super) tenant: Option<Tenant>,
}

/// What the next one to move has to know.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Bytes so far.
    pub(super) moved: u64,
    /// Before which bytes, counted as `moved`, a line has to be over.
    pub(super) seams: VecDeque<u64>,
}

impl Flow {
    pub(super) fn new(open: Option<Arc<OpenLine>>, shared: Weak<Self>) -> Arc<Self> {
        let (is_watched, tenant) = (AtomicBool::new(false), tenant::current());
        Arc::new(Self { progress: Mutex::default(), open, shared, is_watched, tenant })
    }

    /// Held while this thread touches the source, or as `shared` the sink, of its movement. It waits for no other thread: that has no
    /// turn meanwhile.
    pub(super) fn hold(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// While its lines are read, only its own hand moves it: nothing may pass unread.
    pub(super) fn set_watched(&self) {
        self.is_watched.store(true, Ordering::SeqCst);
    }

    pub(super) fn watch_is_over(&self) {
        self.is_watched.store(false, Ordering::SeqCst);
    }

    pub(super) fn is_watched(&self) -> bool {
        self.is_watched.load(Ordering::SeqCst)
    }
}
