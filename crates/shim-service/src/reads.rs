//! The requests that the owner answers at once from its own state: State, Pids, Stats, and the changes that need no decision
//! of the pod: limits, terminal size, end of input.
//!
//! Owns these answers. May never await nor feed the pod.

use std::rc::Rc;

use nix::unistd::Pid;
use pod_lifecycle::{ContainerId, Refusal, RefusalKind, Status, Target};
use protobuf::well_known_types::any::Any;
use streams::console::TerminalSize;

use crate::command::{Answer, ContainerProcess, TaskState};
use crate::error::{ServiceError, runtime_failure};
use crate::metrics;
use crate::report::{FailedUpdate, Report};
use crate::state::State;

pub(crate) fn task_state(state: &State, target: &Target) -> Result<TaskState, ServiceError> {
    let view = state.pod().view(target)?;
    let Some(resources) = state.container(&target.container) else {
        return Err(not_found(&target.container));
    };
    let streams = match &target.exec {
        None => resources.details().streams.clone(),
        Some(exec) => resources.exec(exec).map(|record| record.details().streams.clone()).unwrap_or_default(),
    };
    let bundle = resources.details().bundle.to_string_lossy().into_owned();
    Ok(TaskState { view, bundle, streams })
}

/// The processes of a container. There is always at least one until it is deleted (F13): when containerd 1.7 or 2.x
/// restarts, it ends a task that has none, and an exit that no caller has seen yet would be lost (N1).
pub(crate) fn pids(state: &State, id: ContainerId) -> Result<Vec<ContainerProcess>, ServiceError> {
    let view = state.pod().view(&Target::init(id.clone()))?;
    let resources = state.container(&id).ok_or_else(|| not_found(&id))?;
    let exec_of = |pid: Pid| resources.exec_of(pid).map(ToString::to_string);
    let own = if view.has_process { resources.cgroup() } else { None };
    let pids = own.map(|cgroup| cgroup.pids()).unwrap_or_default();
    let mut processes: Vec<ContainerProcess> =
        pids.into_iter().map(|pid| ContainerProcess { pid, exec: exec_of(pid) }).collect();
    if processes.is_empty() && view.pid != 0 {
        processes.push(ContainerProcess { pid: Pid::from_raw(view.pid.cast_signed()), exec: None });
    }
    Ok(processes)
}

/// Resource numbers. An exited container keeps its last ones: containerd 2.3 asks for them after an exit with 137.
pub(crate) fn stats(state: &mut State, id: ContainerId) -> Result<Any, ServiceError> {
    state.pod().view(&Target::init(id.clone()))?;
    let resources = state.container_mut(&id).ok_or_else(|| not_found(&id))?;
    let Some(stats) = resources.read_stats() else {
        let message = format!("container {id} has no cgroup at the moment");
        return Err(Refusal { kind: RefusalKind::FailedPrecondition, message }.into());
    };
    Ok(metrics::to_any(&stats))
}

/// Applies new limits to the current process, and keeps them for every later incarnation (R6).
pub(crate) fn update(state: &mut State, id: ContainerId, limits: Vec<u8>, answer: Answer<()>) {
    let view = match state.pod().view(&Target::init(id.clone())) {
        Ok(view) => view,
        Err(refusal) => return drop(answer.send(Err(refusal.into()))),
    };
    let Some(resources) = state.container_mut(&id) else {
        return drop(answer.send(Err(not_found(&id))));
    };
    if view.status == Status::Stopped {
        let message = format!("cannot update container {id}: it {}", view.status.in_words());
        return drop(answer.send(Err(Refusal { kind: RefusalKind::FailedPrecondition, message }.into())));
    }
    let limits: Rc<[u8]> = limits.into();
    // Before the call: an incarnation that is created meanwhile gets them too.
    let before = resources.request_limits(limits.clone());
    if !view.has_process {
        return drop(answer.send(Ok(())));
    }
    let runtime = resources.runtime().clone();
    let pid = resources.last_pid();
    let reports = state.reports.clone();
    tokio::task::spawn_local(async move {
        match runtime.update(&limits).await {
            Ok(()) => {
                drop(answer.send(Ok(())));
                drop(reports.send(Report::Updated { container: id, limits }));
            }
            // If the owner has ended, so have its containers.
            Err(error) => drop(reports.send(Report::NotUpdated(Box::new(FailedUpdate {
                container: id,
                pid,
                limits,
                before,
                failure: runtime_failure(error),
                answer,
            })))),
        }
    });
}

/// Limits whose Update failed must not come into effect with the next restart. The Update has not failed if the process was
/// replaced meanwhile (VPA after an OOM kill): the next one has the new limits (R6).
pub(crate) fn update_failed(state: &mut State, failed: FailedUpdate) {
    let FailedUpdate { container, pid, limits, before, failure, answer } = failed;
    let view = state.pod().view(&Target::init(container.clone()));
    if let Some(resources) = state.container_mut(&container) {
        let is_same = resources.last_pid() == pid;
        if view.is_ok_and(|view| view.status != Status::Stopped && !(view.has_process && is_same)) {
            return drop(answer.send(Ok(())));
        }
        resources.limits_failed(&limits, before);
    }
    drop(answer.send(Err(Refusal { kind: failure.kind, message: failure.message }.into())));
}

/// Sets a terminal's size. Without a terminal there is nothing to do, which is no error (CONTRACT §7).
pub(crate) fn resize(state: &mut State, target: &Target, size: TerminalSize) -> Result<(), ServiceError> {
    let view = state.pod().view(target)?;
    // An error for execs only, as in the runc shim.
    if target.exec.is_some() && view.status == Status::Stopped {
        let message = format!("cannot resize the terminal of {target}: it {}", view.status.in_words());
        return Err(Refusal { kind: RefusalKind::FailedPrecondition, message }.into());
    }
    let Some(resources) = state.container_mut(&target.container) else {
        return Err(not_found(&target.container));
    };
    match &target.exec {
        None => resources.resize(size),
        Some(exec) => {
            if let Some(record) = resources.exec_mut(exec) {
                record.resize(size);
            }
        }
    }
    Ok(())
}

/// Closes stdin. Without one, or after the exit, there is nothing to do, which is no error (CONTRACT §7).
pub(crate) fn close_stdin(state: &mut State, target: &Target) -> Result<(), ServiceError> {
    state.pod().view(target)?;
    let Some(resources) = state.container_mut(&target.container) else {
        return Err(not_found(&target.container));
    };
    match &target.exec {
        None => resources.close_stdin(),
        Some(exec) => {
            if let Some(record) = resources.exec_mut(exec) {
                record.close_stdin();
            }
        }
    }
    Ok(())
}

fn not_found(id: &ContainerId) -> ServiceError {
    Refusal { kind: RefusalKind::NotFound, message: format!("container {id} not found") }.into()
}
