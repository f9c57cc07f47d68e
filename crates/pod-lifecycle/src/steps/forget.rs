//! A container that is gone.
//!
//! Owns that no request that waits for it stays unanswered. Never decides that it goes: its create has failed, or its
//! caller has deleted it.

use crate::container::{Container, RemovedContainer};
use crate::interface::action::Reply;
use crate::interface::id::ContainerId;
use crate::interface::outcome::Refusal;
use crate::state::State;

/// Drops a container from the tables and answers all requests that still wait for it.
pub(crate) fn forget(pod: &mut State, id: &ContainerId) -> Option<Container> {
    let RemovedContainer { container, mut waiters, execs } = pod.remove_container(id)?;
    for exec in execs {
        let remains = exec.into_remains();
        for delete in remains.deletes {
            pod.reply(delete, Ok(Reply::Deleted(remains.deleted)));
        }
        waiters.extend(remains.waiters);
    }
    for waiter in waiters {
        pod.reply(waiter, Err(Refusal::not_found(format!("container {id} was deleted"))));
    }
    pod.mark_changed();
    Some(container)
}
