//! What the owner does when an operation has completed or a process has exited.
//!
//! Owns the step from a report to the state, and the watch of each process for OOM kills and its exit. May never feed the pod:
//! it returns the event, and `drive` feeds it.

use std::rc::Rc;

use cgroups::OomWatch;
use oci_runtime::runtime::DeleteMode;
use pod_lifecycle::{ContainerId, Event, Exit, OpId, Outcome, Target};
use processes::reaper::{self, ExitWatch};
use processes::{Process, SignalNumber};
use streams::head::Streams;
use tracing::warn;

use crate::clock::{wall_now, wall_time};
use crate::error::failure;
use crate::incarnation::{NewExec, NewIncarnation};
use crate::listen;
use crate::names::names;
use crate::report::{Completion, CompletionReporter, OperationResult, Report, ReportSender};
use crate::resources::Resources;
use crate::state::State;

/// Keeps what an operation has left. Returns the event for the pod and the watch of a new process, which begins after the
/// event: the pod must know a process before it is fed its exit. `None`: the operation goes on.
pub(crate) fn complete(state: &mut State, completion: Completion) -> Option<(Event, Option<Watch>)> {
    let Completion { op, container, mut outcome, result } = completion;
    if state.given_up.remove(&op) {
        end_late(state, &container, result);
        return None;
    }
    let (mut new_process, id) = (None, container.clone());
    match result {
        OperationResult::Nothing => {}
        OperationResult::Streams(streams) => keep_streams(state, &container, *streams),
        OperationResult::Created(created) => {
            let (streams, new) = *created;
            keep_streams(state, &container, streams);
            new_process = Some(keep_process(state, &container, new));
        }
        OperationResult::Recreated(new) if is_outdated(state, &container, &new) => {
            apply_newer_limits(state, op, container, outcome, new);
            return None;
        }
        OperationResult::Recreated(new) => {
            new_process = Some(keep_process(state, &container, *new));
        }
        OperationResult::Exec(exec, new) => {
            let NewExec { streams, terminal, process, exit } = *new;
            let resources = state.container_mut(&container);
            if let Some(record) = resources.and_then(|resources| resources.exec_mut(&exec)) {
                record.started(streams, terminal, process);
            }
            let target = Target { container: container.clone(), exec: Some(exec) };
            new_process = Some(Watch { target, exit, oom: None });
        }
        OperationResult::Removed(_) if is_delete_awaited(state, &container) => {
            state.forget(&container);
            state.pids.forget(&container);
        }
        // Trap 12: containerd gave up waiting. If the container were forgotten now, the next Delete would get NotFound,
        // no Shutdown would follow, and the shim would never end. The next Delete is answered from this one.
        OperationResult::Removed(removal) => {
            if let Some(resources) = state.container_mut(&container) {
                resources.removal_ended(removal);
            }
            outcome = Outcome::Failed(failure("no caller waited for the end of its delete"))
        }
        OperationResult::CreateFailed(fifos) => {
            state.forget(&container);
            names().remove_container(container.as_str());
            state.keep_unused_fifos(container, fifos);
        }
        OperationResult::RemovedExec(exec) => {
            if let Some(resources) = state.container_mut(&container) {
                resources.remove_exec(&exec);
            }
        }
    }
    if let Some(resources) = state.container_mut(&id) {
        resources.calls_ended(op);
    }
    Some((Event::Done { op, outcome, at: wall_now() }, new_process))
}

fn keep_streams(state: &mut State, id: &ContainerId, streams: Streams) {
    state.close_unused_fifos(id);
    if let Some(resources) = state.container_mut(id) {
        resources.streams_opened(streams);
    }
}

/// T10: the pod's answer to an operation that it has given up.
pub(crate) fn given_up(op: OpId) -> Event {
    let outcome = Outcome::Failed(failure("the OCI runtime had not answered when the container was to end"));
    Event::Done { op, outcome, at: wall_now() }
}

/// Ends what an operation has made that was given up: the pod knows nothing of it.
fn end_late(state: &State, id: &ContainerId, result: OperationResult) {
    let new = match result {
        OperationResult::Recreated(new) => new,
        OperationResult::Exec(_, new) => {
            kill(id, &new.process);
            tokio::task::spawn_local(new.exit);
            return;
        }
        _ => return,
    };
    kill(id, new.incarnation.process());
    let Some(resources) = state.container(id) else { return };
    let (runtime, turn) = (resources.runtime().clone(), resources.turn());
    tokio::task::spawn_local(async move {
        let _alone = turn.lock().await;
        if let Err(error) = runtime.delete(DeleteMode::Force).await {
            warn!(container = runtime.id(), %error, "cannot remove a process that nothing waits for any more");
        }
        drop(new);
    });
}

fn kill(id: &ContainerId, process: &Process) {
    if let Err(error) = process.signal(SignalNumber::KILL) {
        warn!(container = %id, %error, "cannot end a process that nothing waits for any more");
    }
}

/// Whether an Update came while the process was created (R6): its caller was answered that the limits hold.
fn is_outdated(state: &State, id: &ContainerId, new: &NewIncarnation) -> bool {
    let wanted = state.container(id).and_then(Resources::limits);
    wanted.is_some_and(|wanted| new.limits.as_ref().is_none_or(|limits| !Rc::ptr_eq(limits, wanted)))
}

/// Applies limits that are newer than the process, then completes its operation: no program may start with older ones.
fn apply_newer_limits(
    state: &State,
    op: OpId,
    container: ContainerId,
    outcome: Outcome,
    mut new: Box<NewIncarnation>,
) {
    let Some(resources) = state.container(&container) else { return };
    let (launcher, limits) = (resources.launcher(), resources.limits().cloned());
    let done = CompletionReporter::new(op, container, state.reports.clone());
    tokio::task::spawn_local(async move {
        launcher.apply_limits(&mut new, limits).await;
        done.finish(outcome, OperationResult::Recreated(new));
    });
}

/// Whether a caller waits for the end of the container's delete. Without its bundle none needs to: containerd removes that
/// when it has forgotten the container.
fn is_delete_awaited(state: &State, id: &ContainerId) -> bool {
    let Some(resources) = state.container(id) else { return true };
    resources.deletes().iter().any(|request| state.requests.is_awaited(*request))
        || !resources.details().bundle.exists()
}

/// Keeps a container's new process.
fn keep_process(state: &mut State, id: &ContainerId, new: NewIncarnation) -> Watch {
    let NewIncarnation { mut incarnation, held_back, streams, cgroup, guard, exit, oom, limits: _ } = new;
    let pid = incarnation.process().pid();
    state.pids.remember(pid, id);
    if let (Some(resources), gate) = state.container_and_gate(id) {
        if let Some(streams) = streams {
            resources.streams_opened(streams);
        }
        listen::begin(resources, &mut incarnation, gate, cgroup.as_ref());
        resources.process_created(incarnation, held_back, cgroup, guard);
    }
    Watch { target: Target::init(id.clone()), exit, oom }
}

/// The pod's event for the exit of a process.
pub(crate) fn exited(state: &mut State, target: Target, exit: reaper::Exit) -> Event {
    output_ended(state, &target);
    if target.exec.is_none() {
        state.ended(&target.container);
    }
    let exit = Exit { code: exit.code.into(), at: wall_time(exit.at) };
    Event::Exited { target, exit }
}

/// Ends an exec's output with its process. A container's output may go on with its next incarnation: `Finish` ends it.
fn output_ended(state: &mut State, target: &Target) {
    let Some(exec) = &target.exec else {
        // Only a scope's numbers: they are gone in a moment. Reading some thirty files must not delay the exit's event.
        if let Some(resources) = state.container_mut(&target.container) {
            resources.read_stats_of_scope();
            resources.exited();
        }
        return;
    };
    let resources = state.container_mut(&target.container);
    let Some(record) = resources.and_then(|resources| resources.exec_mut(exec)) else { return };
    record.exited();
}

/// The watch of one process.
pub(crate) struct Watch {
    target: Target,
    exit: ExitWatch,
    oom: Option<OomWatch>,
}

impl Watch {
    /// Reports the process's OOM kills and its exit, in that order: CRI asks why a container died only once.
    pub(crate) fn begin(self, reports: ReportSender) {
        let Self { target, mut exit, mut oom } = self;
        tokio::task::spawn_local(async move {
            let exit = loop {
                tokio::select! {
                    biased;
                    exit = &mut exit => break exit,
                    _ = next_oom(&mut oom) => {
                        let _ = reports.send(Report::OutOfMemory { container: target.container.clone() });
                    }
                }
            };
            // cgroup v1 counts a kill after it has reported it: look once more.
            if oom.is_some_and(|mut oom| oom.new_kills() > 0) {
                let _ = reports.send(Report::OutOfMemory { container: target.container.clone() });
            }
            let _ = reports.send(Report::Exited { target, exit });
        });
    }
}

/// The next OOM kill. Pending for ever where none is watched, or its group seems to be gone: the exit asks once more.
async fn next_oom(watch: &mut Option<OomWatch>) -> u64 {
    if let Some(oom) = watch
        && let Some(kills) = oom.next().await
    {
        return kills;
    }
    std::future::pending().await
}
