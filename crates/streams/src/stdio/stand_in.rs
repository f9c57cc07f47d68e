//! Moves what another hand does not come to.
//!
//! Owns the movements that stand in. The work of a terminal, of a hook's lines and of a stream whose lines a gate reads is not in stock:
//! what has been read of these and not written yet is in the memory of their own hand.

use std::collections::BTreeMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use threads::hand::stock::Work;
use tracing::debug;

use super::flow::Flow;
use super::movement::Task;
use super::mover::Mover;

/// Movements of another hand's works. Dropping this ends them between two calls.
#[derive(Debug)]
pub(crate) struct StandIn(
    // Only kept.
    #[expect(dead_code, reason = "dropping it ends them")] Vec<Task>,
);

impl StandIn {
    /// Begins on the current `LocalSet`.
    pub(crate) fn for_works(works: Vec<Work>) -> Self {
        let mut movers: BTreeMap<*const Flow, Weak<Mover>> = BTreeMap::new();
        let mut tasks = Vec::new();
        // What others lead into comes before them.
        for Work { what, descriptors: [source, sink] } in works {
            let Ok(flow) = what.downcast::<Flow>() else { continue };
            let shared = movers.get(&flow.shared.as_ptr()).cloned().unwrap_or_default();
            let place = Arc::as_ptr(&flow);
            match Mover::standing_in(source.into(), sink.into(), flow, shared) {
                Ok(mover) => {
                    let mover = Rc::new(mover);
                    movers.insert(place, Rc::downgrade(&mover));
                    tasks.push(Task::standing_in(mover));
                }
                Err(error) => debug!(%error, "cannot go on with a stream of another thread"),
            }
        }
        Self(tasks)
    }
}
