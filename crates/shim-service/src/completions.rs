//! What comes of the operations that the owner began: a new process is taken over and watched, what is removed is
//! forgotten.
//!
//! Owns the step from an operation's result to what the owner keeps of it, and hearing of a process's OOM kills and
//! end. It never waits: the watching is a task that reports to the owner's inbox.

use std::rc::Rc;
use std::time::Duration;

use oci_runtime::cgroup::OomWatch;
use oci_runtime::reaper::{self, ExitWatch};
use pod_lifecycle::{ContainerId, Event, Exit, OpId, Outcome, Target};
use tracing::warn;

use crate::clock::{wall_now, wall_time};
use crate::error::failure;
use crate::incarnation::{NewExec, NewIncarnation};
use crate::listen;
use crate::names::names;
use crate::report::{Completion, Product, Report, ReportSender};
use crate::resources::Resources;
use crate::state::State;

/// What may take an exec's terminal to be read out after its process.
const LAST_TERMINAL_OUTPUT: Duration = Duration::from_millis(500);

/// Keeps what an operation leaves to the owner. Gives the event for the pod and, to be begun after it, the watch of a new
/// process: the pod must know the process whose exit it is fed. `None`: the operation goes on.
pub(crate) fn complete(state: &mut State, completion: Completion) -> Option<(Event, Option<Watch>)> {
    let Completion { op, container, mut outcome, product } = completion;
    let mut new_process = None;
    match product {
        Product::Nothing => {}
        Product::Stdio(stdio) => {
            state.close_unused_fifos(&container);
            if let Some(resources) = state.containers.get_mut(&container) {
                resources.stdio_opened(*stdio);
            }
        }
        Product::Created(created) => {
            let (stdio, new) = *created;
            state.close_unused_fifos(&container);
            if let Some(resources) = state.containers.get_mut(&container) {
                resources.stdio_opened(stdio);
            }
            new_process = Some(take_over(state, &container, new));
        }
        Product::Recreated(new) if is_outdated(state, &container, &new) => {
            apply_newer_limits(state, op, container, outcome, new);
            return None;
        }
        Product::Recreated(new) => {
            new_process = Some(take_over(state, &container, *new));
        }
        Product::Exec(exec, new) => {
            let NewExec { stdio, console, process, exit } = *new;
            let resources = state.containers.get_mut(&container);
            if let Some(record) = resources.and_then(|resources| resources.exec_mut(&exec))
                && let Err(error) = record.started(stdio, console, process)
            {
                warn!(container = %container, %exec, %error, "cannot resize its terminal");
            }
            let target = Target { container: container.clone(), exec: Some(exec) };
            new_process = Some(Watch { target, exit, oom: None });
        }
        Product::Removed if is_delete_awaited(state, &container) => {
            state.containers.remove(&container);
            state.pids.forget(&container);
        }
        // Trap 12: containerd gave up waiting. Were it forgotten now, the next Delete would get NotFound,
        // no Shutdown would follow, and the shim would stay for ever.
        Product::Removed => outcome = Outcome::Failed(failure("no caller waited for the end of its delete")),
        Product::CreateFailed(fifos) => {
            state.containers.remove(&container);
            names().remove_container(container.as_str());
            state.keep_unused_fifos(container, fifos);
        }
        Product::RemovedExec(exec) => {
            if let Some(resources) = state.containers.get_mut(&container) {
                resources.remove_exec(&exec);
            }
        }
    }
    Some((Event::Done { op, outcome, at: wall_now() }, new_process))
}

/// Whether an Update came while a process was made (R6): its caller got the answer that it holds.
fn is_outdated(state: &State, id: &ContainerId, new: &NewIncarnation) -> bool {
    let wanted = state.containers.get(id).and_then(Resources::limits);
    wanted.is_some_and(|wanted| new.limits.as_ref().is_none_or(|limits| !Rc::ptr_eq(limits, wanted)))
}

/// Before the pod hears of the process, so that no program runs with older limits.
fn apply_newer_limits(
    state: &State,
    op: OpId,
    container: ContainerId,
    outcome: Outcome,
    mut new: Box<NewIncarnation>,
) {
    let Some(resources) = state.containers.get(&container) else { return };
    let (launcher, limits, reports) =
        (resources.launcher(), resources.limits().cloned(), state.reports.clone());
    tokio::task::spawn_local(async move {
        launcher.apply_limits(&mut new, limits).await;
        let product = Product::Recreated(new);
        // The owner has ended: no report is read any more.
        let _ = reports.send(Report::Completed(Completion { op, container, outcome, product }));
    });
}

/// Whether a Delete's end reaches its caller, or containerd has forgotten the container anyway: it removes
/// the bundle then.
fn is_delete_awaited(state: &State, id: &ContainerId) -> bool {
    let Some(resources) = state.containers.get(id) else { return true };
    resources.deletes().iter().any(|request| state.requests.is_awaited(*request))
        || !resources.details().bundle.exists()
}

/// Takes a container's new process over; its end is to be reported once the pod knows it.
fn take_over(state: &mut State, id: &ContainerId, new: NewIncarnation) -> Watch {
    let NewIncarnation { mut incarnation, held_back, cgroup, exit, oom, limits: _ } = new;
    let pid = incarnation.process().pid();
    state.pids.remember(pid, id);
    if let Some(resources) = state.containers.get_mut(id) {
        listen::begin(resources, &mut incarnation, state.pod.closed_gate(id), cgroup.as_ref());
        if let Err(error) = resources.process_created(incarnation, held_back, cgroup) {
            warn!(container = %id, %error, "cannot resize its terminal");
        }
    }
    Watch { target: Target::init(id.clone()), exit, oom }
}

/// A process has exited: the event for the pod.
pub(crate) fn exited(state: &mut State, target: Target, exit: reaper::Exit) -> Event {
    output_ended(state, &target);
    let exit = Exit { code: exit.code.into(), at: wall_time(exit.at) };
    Event::Exited { target, exit }
}

/// Keeps what goes with a process. An exec's output ends with it; a container's may go on in its next incarnation (`Finish`).
fn output_ended(state: &mut State, target: &Target) {
    let Some(exec) = &target.exec else {
        // Only the scope's files: the thirty of the other cgroups are not needed before the exit is published.
        if let Some(resources) = state.containers.get_mut(&target.container) {
            resources.read_stats_of_scope();
        }
        return;
    };
    let resources = state.containers.get_mut(&target.container);
    let Some(record) = resources.and_then(|resources| resources.exec_mut(exec)) else { return };
    // CONTRACT §7: a terminal is closed at the exit, even if another process still holds it.
    if let Some(console) = record.exited() {
        tokio::task::spawn_local(console.shutdown(LAST_TERMINAL_OUTPUT));
    }
}

/// A process whose end is to be reported.
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
                    Some(_) = next_oom(&mut oom) => {
                        let _ = reports.send(Report::OutOfMemory { container: target.container.clone() });
                    }
                }
            };
            // The kernel counts a kill after it has reported it (v1): look once more.
            if oom.is_some_and(|mut oom| oom.new_kills() > 0) {
                let _ = reports.send(Report::OutOfMemory { container: target.container.clone() });
            }
            let _ = reports.send(Report::Exited { target, exit });
        });
    }
}

/// The next OOM kill; never, once there is nothing to watch.
async fn next_oom(watch: &mut Option<OomWatch>) -> Option<u64> {
    match watch {
        Some(oom) => match oom.next().await {
            Some(kills) => Some(kills),
            None => {
                *watch = None;
                std::future::pending().await
            }
        },
        None => std::future::pending().await,
    }
}
