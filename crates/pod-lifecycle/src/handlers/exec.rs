//! Execs: extra processes of a container, never held (K1, U8).
//!
//! Owns every request about an exec, and what its exit means for its container's own exit (CONTRACT §6). Never holds an
//! exec. Changes: container.

use pod_spec::Signal;

use crate::container::exec::{Exec, ExecPhase};
use crate::container::phase::Phase;
use crate::interface::action::{Action, Notice, Reply};
use crate::interface::exit::Exit;
use crate::interface::id::{ContainerId, ExecId, RequestId, Target};
use crate::interface::milestone::SignalCause;
use crate::interface::operation::{Operation, Reach};
use crate::interface::outcome::{Failure, Outcome, Refusal, RefusalKind};
use crate::interface::view::Status;
use crate::rules::exit::finish_if_drained;
use crate::state::State;
use crate::steps::signal::kill_execs;

/// Why a container cannot take a new process, if it cannot.
fn refuses_exec(pod: &State, id: &ContainerId) -> Option<Refusal> {
    let Some(container) = pod.container(id) else {
        return Some(Refusal::not_found(format!("container {id} not found")));
    };
    let reason = match container.phase() {
        // As with the runc shim: a frozen container would not run it.
        Phase::Running { .. } if container.freezer.is_paused() => Status::Paused.in_words(),
        // U8: also one whose program does not run yet.
        Phase::Created | Phase::Held(_) | Phase::Starting { .. } | Phase::Running { .. } => return None,
        phase => phase.in_words(),
    };
    Some(Refusal::precondition(format!("cannot exec in container {id}: it {reason}")))
}

/// A caller registers an exec.
pub(crate) fn add_exec(pod: &mut State, request: RequestId, id: ContainerId, exec: ExecId) {
    if let Some(refusal) = refuses_exec(pod, &id) {
        return pod.reply(request, Err(refusal));
    }
    let Some(container) = pod.container_mut(&id) else { return };
    if container.exec(&exec).is_some() {
        let refusal =
            Refusal::new(RefusalKind::AlreadyExists, format!("exec {exec} of container {id} already exists"));
        return pod.reply(request, Err(refusal));
    }
    container.add_exec(exec.clone());
    pod.emit_change(Action::Publish(Notice::ExecAdded { container: id, exec }));
    pod.reply(request, Ok(Reply::Ok));
}

/// A caller starts an exec.
pub(crate) fn start_exec(pod: &mut State, request: RequestId, id: ContainerId, exec: ExecId) {
    let refusal = refuses_exec(pod, &id);
    let op = pod.next_op();
    let Some(record) = pod.exec_mut(&id, &exec) else {
        return pod.reply_exec_not_found(request, &id, &exec);
    };
    if !record.may_start() {
        let refusal = Refusal::precondition(format!("exec {exec} of container {id} was already started"));
        return pod.reply(request, Err(refusal));
    }
    if let Some(refusal) = refusal {
        return pod.reply(request, Err(refusal));
    }
    record.start(op, request);
    pod.emit_change(Action::Run { op, container: id, operation: Operation::StartExec(exec) });
}

/// An exec's start has ended.
pub(crate) fn exec_started(pod: &mut State, id: ContainerId, exec: ExecId, outcome: Outcome) {
    let Some(record) = pod.exec_mut(&id, &exec) else { return };
    let Some(request) = record.start_request() else { return };
    match outcome {
        Outcome::Process { pid } => {
            record.started(pid);
            pod.emit_change(Action::Publish(Notice::ExecStarted { container: id.clone(), exec, pid }));
            pod.reply(request, Ok(Reply::Pid(pid)));
            // Its init is gone, and this process may have started after the kill of all remaining processes.
            if pod.container(&id).is_some_and(|container| matches!(container.phase(), Phase::Draining { .. }))
            {
                kill_execs(pod, &id);
            }
        }
        Outcome::Failed(Failure { message, kind }) => {
            let waiters = record.start_failed();
            pod.reply(request, Err(Refusal { kind, message }));
            for waiter in waiters {
                pod.reply(waiter, Ok(Reply::Exit(Exit::default())));
            }
            finish_if_drained(pod, &id);
        }
        Outcome::Ok => pod.impossible(format!("exec {exec} of container {id} started without a process")),
    }
}

/// An exec's process is gone.
pub(crate) fn exec_exited(pod: &mut State, id: ContainerId, exec: ExecId, exit: Exit) {
    let Some(record) = pod.exec_mut(&id, &exec) else { return };
    if !record.runs() {
        return pod.impossible(format!("exit of exec {exec} of container {id}, which does not run"));
    }
    let (pid, waiters) = record.exited(exit);
    let target = Target { container: id.clone(), exec: Some(exec) };
    pod.emit_change(Action::Publish(Notice::Exited { target, pid, exit }));
    for waiter in waiters {
        pod.reply(waiter, Ok(Reply::Exit(exit)));
    }
    finish_if_drained(pod, &id);
}

/// K1: execs get every signal at once.
pub(crate) fn kill_exec(pod: &mut State, request: RequestId, target: Target, signal: Signal) {
    let Some(id) = target.exec.clone() else { return };
    let Some(exec) = pod.exec_mut(&target.container, &id) else {
        return pod.reply_exec_not_found(request, &target.container, &id);
    };
    match exec.phase() {
        ExecPhase::Running => {
            let (reach, cause) = (Reach::Process, SignalCause::Caller);
            pod.emit_change(Action::Signal { target, signal, reach, cause });
            pod.reply(request, Ok(Reply::Ok));
        }
        ExecPhase::Added | ExecPhase::Failed | ExecPhase::Starting { .. } => {
            pod.reply(request, Err(Refusal::precondition(format!("{target} is not started"))));
        }
        ExecPhase::Stopped { .. } | ExecPhase::Removing { .. } => pod.reply_finished(request, &target),
    }
}

/// A caller deletes an exec.
pub(crate) fn delete_exec(pod: &mut State, request: RequestId, id: ContainerId, exec: ExecId) {
    let op = pod.next_op();
    let Some(record) = pod.exec_mut(&id, &exec) else {
        return pod.reply_exec_not_found(request, &id, &exec);
    };
    if record.remove_again(request) {
        return;
    }
    if record.is_running() {
        let refusal = Refusal::precondition(format!("exec {exec} of container {id} is running"));
        return pod.reply(request, Err(refusal));
    }
    record.remove(op, request);
    pod.emit_change(Action::Run { op, container: id, operation: Operation::RemoveExec(exec) });
}

/// An exec's removal has ended.
pub(crate) fn exec_removed(pod: &mut State, id: ContainerId, exec: ExecId, outcome: Outcome) {
    let Some(container) = pod.container_mut(&id) else { return };
    if let Outcome::Failed(Failure { message, kind }) = outcome {
        let requests = container.exec_mut(&exec).map(Exec::removal_failed).unwrap_or_default();
        for request in requests {
            pod.reply(request, Err(Refusal { kind, message: message.clone() }));
        }
        return;
    }
    let Some(removed) = container.remove_exec(&exec).map(Exec::into_removed) else { return };
    for request in removed.deletes {
        pod.reply(request, Ok(Reply::Deleted(removed.deleted)));
    }
    for waiter in removed.waiters {
        let refusal = Refusal::not_found(format!("exec {exec} of container {id} was deleted"));
        pod.reply(waiter, Err(refusal));
    }
}
