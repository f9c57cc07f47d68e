//! Exits: the init of a container is gone, and what goes with it (R6, R10).
//!
//! Owns the order of exits within a container (CONTRACT §6). Never decides what the last exit means: `rules::exit` does.
//! Changes: container, hooks, freezer.

use crate::container::InitExit;
use crate::container::freezer::FreezerChange;
use crate::container::phase::ExitedFrom;
use crate::interface::action::{Action, Notice, Reply};
use crate::interface::exit::{Exit, KILLED};
use crate::interface::id::ContainerId;
use crate::interface::milestone::Milestone;
use crate::interface::operation::Operation;
use crate::interface::outcome::{Outcome, Refusal};
use crate::interface::spec::PidNamespace;
use crate::questions::exit_codes::is_shown;
use crate::questions::pod_restart::is_withheld;
use crate::rules::exit::finish_if_drained;
use crate::rules::gate::exited_zero_before_exec_was_seen;
use crate::state::State;
use crate::steps::signal::kill_execs;

/// The init process of a container is gone.
pub(crate) fn init_exited(pod: &mut State, id: ContainerId, exit: Exit) {
    let now = pod.now();
    let Some(container) = pod.container_mut(&id) else { return };
    let was = match container.init_exited(exit, now) {
        InitExit::From(was) => was,
        InitExit::Deferred => return,
        InitExit::Impossible => {
            return pod.impossible(format!("exit of container {id}, which has no process"));
        }
    };
    // No process is left to signal.
    container.hooks.stop_waiting();
    let ran = matches!(was, ExitedFrom::Running { .. });
    // A gate that asks has been seen executed already: this changes nothing for it.
    let was_probed = container.stop_probing().is_some();
    let interrupted = container.freezer.exited();
    // Without a PID namespace of its own, a container's other processes outlive its init (R6, CONTRACT §6). A held
    // container can have execs (U8) that nothing else would end.
    let leftovers =
        container.spec().pid_namespace == PidNamespace::Shared && (ran || container.has_running_execs());
    let op = leftovers.then(|| pod.run(&id, Operation::KillRemaining));
    if let Some(container) = pod.container_mut(&id) {
        container.drain(exit, was, op);
    }
    if ran {
        pod.record(&id, Milestone::Exited { exit });
    }
    if was_probed && exit.code == 0 {
        exited_zero_before_exec_was_seen(pod, &id);
    }
    match interrupted {
        Some((request, FreezerChange::Pause)) => {
            let text = format!("container {id} exited before it could be paused");
            pod.reply(request, Err(Refusal::precondition(text)));
        }
        // It has exited, so it was thawed: a signal that it got while frozen can be faster than the runtime's
        // answer.
        Some((request, FreezerChange::Resume)) => {
            pod.emit_change(Action::Publish(Notice::Resumed { container: id.clone() }));
            pod.reply(request, Ok(Reply::Ok));
        }
        None => {}
    }
    finish_if_drained(pod, &id);
}

/// The kill of what was left in the container's cgroup has ended (R6).
pub(crate) fn leftovers_killed(pod: &mut State, id: ContainerId, outcome: Outcome) {
    let Some(container) = pod.container_mut(&id) else { return };
    container.leftovers_ended();
    if let Outcome::Failed(failure) = outcome {
        container.hooks.give_up();
        pod.emit_change(Action::Warn(format!("container {id}: processes may be left: {}", failure.message)));
        kill_execs(pod, &id);
    }
    finish_if_drained(pod, &id);
}

/// R10: publishes an OOM kill only for containers whose exit is shown, and with its own code; otherwise CRI reports a live
/// one, or one that has ended with 0, as OOMKilled.
pub(crate) fn out_of_memory(pod: &mut State, id: ContainerId) {
    pod.record(&id, Milestone::OutOfMemory);
    let Some(container) = pod.container(&id) else { return };
    if is_withheld(pod, container, KILLED) || !is_shown(pod, container, KILLED) {
        return;
    }
    pod.emit_change(Action::Publish(Notice::OutOfMemory { container: id }));
}
