//! Wait.

use crate::container::exec::ExecPhase;
use crate::container::phase::{BeforeRemoval, Phase};
use crate::interface::action::Reply;
use crate::interface::exit::Exit;
use crate::interface::id::{RequestId, Target};
use crate::state::State;

pub(crate) fn add_waiter(pod: &mut State, request: RequestId, target: Target) {
    let Some(container) = pod.containers.get_mut(&target.container) else {
        return pod.reply_not_found(request, &target.container);
    };
    let exit = match &target.exec {
        None => match container.phase {
            Phase::Stopped { exit } | Phase::Removing { exit, before: BeforeRemoval::Stopped, .. } => exit,
            _ => return container.waiters.push(request),
        },
        Some(exec) => match container.execs.get_mut(exec) {
            None => return pod.reply_exec_not_found(request, &target.container, exec),
            Some(record) => match &record.phase {
                ExecPhase::Stopped { exit } | ExecPhase::Removing { exit: Some(exit), .. } => *exit,
                ExecPhase::Failed => Exit::default(),
                _ => return record.waiters.push(request),
            },
        },
    };
    pod.reply(request, Ok(Reply::Exit(exit)));
}

/// A containerd that was killed sends its Waits again when it is back. Otherwise each restart would leave one Wait
/// per container here.
pub(crate) fn forget_waiter(pod: &mut State, request: RequestId) {
    for container in pod.containers.values_mut() {
        let execs = container.execs.values_mut().map(|exec| &mut exec.waiters);
        for waiters in execs.chain([&mut container.waiters]) {
            waiters.retain(|waiter| *waiter != request);
        }
    }
}
