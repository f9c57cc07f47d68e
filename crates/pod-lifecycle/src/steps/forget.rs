//! Drops a container from the tables.

use crate::container::Container;
use crate::container::exec::ExecPhase;
use crate::interface::action::{Deleted, Reply};
use crate::interface::id::ContainerId;
use crate::interface::outcome::Refusal;
use crate::state::State;

/// Drops a container from the tables and answers all requests that still wait for it.
pub(crate) fn forget(pod: &mut State, id: &ContainerId) -> Option<Container> {
    let mut container = pod.containers.remove(id)?;
    if pod.sandbox.as_ref() == Some(id) {
        pod.sandbox = None;
        pod.sandbox_gone = true;
    }
    for index in 0..pod.members.len() {
        if pod.members[index].current.as_ref() == Some(id) {
            pod.members[index].current = None;
            pod.merge_evidence(index);
        }
    }
    let mut waiters = std::mem::take(&mut container.waiters);
    waiters.extend(container.takeover_request());
    waiters.extend(container.checkpoint.take().map(|checkpoint| checkpoint.request));
    let mut removed = Vec::new();
    for exec in container.execs.values_mut() {
        waiters.append(&mut exec.waiters);
        match &mut exec.phase {
            ExecPhase::Starting { request, .. } => waiters.push(*request),
            ExecPhase::Removing { requests, exit, .. } => {
                let deleted = Deleted { pid: exec.pid, exit: exit.unwrap_or_default() };
                removed.extend(requests.drain(..).map(|request| (request, deleted)));
            }
            _ => {}
        }
    }
    for (request, deleted) in removed {
        pod.reply(request, Ok(Reply::Deleted(deleted)));
    }
    for waiter in waiters {
        pod.reply(waiter, Err(Refusal::not_found(format!("container {id} was deleted"))));
    }
    pod.mark_changed();
    Some(container)
}
