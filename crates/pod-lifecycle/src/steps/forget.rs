//! A container that is gone.
//!
//! Owns that no request that waits for it stays unanswered. Never decides that it goes: its create has failed, or its
//! caller has deleted it. Changes: tables.

use crate::container::{Container, RemovedContainer};
use crate::interface::action::Reply;
use crate::interface::id::ContainerId;
use crate::interface::outcome::Refusal;
use crate::state::State;

/// Drops a container from the tables and answers all requests that still wait for it.
pub(crate) fn forget(pod: &mut State, id: &ContainerId) -> Option<Container> {
    let RemovedContainer { container, mut waiters, execs } = pod.remove_container(id)?;
    for exec in execs {
        let removed = exec.into_removed();
        for delete in removed.deletes {
            pod.reply(delete, Ok(Reply::Deleted(removed.deleted)));
        }
        waiters.extend(removed.waiters);
    }
    for waiter in waiters {
        pod.reply(waiter, Err(Refusal::not_found(format!("container {id} was deleted"))));
    }
    pod.mark_changed();
    Some(container)
}
