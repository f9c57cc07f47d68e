//! The loop of a pod's owner: feeds the state machine and executes the actions it returns (DESIGN §3).
//!
//! Owns the order of inputs: one at a time, and all of the pod's actions before the next. It alone feeds the pod. Never awaits while
//! it handles an input: what takes time runs in tasks that report back.

use control_api::Past;
use pod_lifecycle::{
    Action, ContainerId, Event, ExecId, LineTarget, Refusal, RefusalKind, Reply, Request, Target,
};
use threads::{busy, stack};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::actions;
use crate::checkpoint;
use crate::clock::wall_ms;
use crate::command::{Answer, Command, ControlCommand, SandboxCommand};
use crate::completions;
use crate::control::counters::PodCounters;
use crate::control::restart_requests::Novelty;
use crate::control::{fault, log};
use crate::creation::{self, SpecSource};
use crate::details::{CreateDetails, ExecDetails};
use crate::error::ServiceError;
use crate::inspect;
use crate::node::NodeFile;
use crate::publisher::Publisher;
use crate::reads;
use crate::report::Report;
use crate::sandbox_requests;
use crate::state::State;

/// Serves until the shim may end. `stop` yields when a signal has asked the process to end. Returns the publisher, for its last events, the pod's counts,
/// and the record that is kept of the pod.
pub(crate) async fn run_until_empty(
    mut state: State,
    mut commands: mpsc::Receiver<Command>,
    mut reports: mpsc::UnboundedReceiver<Report>,
    mut stop: mpsc::Receiver<()>,
) -> (Publisher, PodCounters, Option<Past>) {
    let clock = state.clock();
    while !state.is_over() {
        state.count_what_has_ended();
        let next = state.pod().next_deadline().and_then(|at| clock.instant(at));
        let leave_by = state.leave_by();
        let fault_due = state.created_names.report_due(state.pod());
        let forget_by = sandbox_requests::forgotten_at(&state);
        let deadline = next.into_iter().chain(leave_by).chain(fault_due).chain(forget_by).min();
        tokio::select! {
            // What has happened comes before what a caller asks next.
            biased;
            Some(report) = reports.recv() => {
                busy::during(report.name(), || on_report(&mut state, report));
                stack::give_back();
            }
            Some(()) = stop.recv() => {
                info!("asked to end by a signal: the pod is stopped in order");
                feed(&mut state, Event::StopPod { grace: None });
                state.stop_signalled();
            }
            id = state.requests.next_abandoned() => feed(&mut state, Event::Abandoned { id }),
            Some(command) = commands.recv() => {
                busy::during("a request", || on_command(&mut state, command));
            }
            () = clock.sleep_until(deadline), if deadline.is_some() => {
                busy::during("what was due", || {
                    feed(&mut state, Event::Tick);
                    report_fault(&mut state);
                    if forget_by.is_some_and(|by| Instant::now() >= by) {
                        forget_sandbox(&mut state);
                    }
                });
            }
            // After the answers: their callers do not wait for it.
            () = tokio::task::yield_now(), if state.counters.is_unsaved() => {
                busy::during("its counts", || state.save_counts());
            }
            else => break,
        }
    }
    state.count_what_has_ended();
    let past = inspect::past(&state);
    state.discard_sandbox();
    (state.publisher, state.counters, past)
}

fn on_report(state: &mut State, report: Report) {
    match report {
        Report::Completed(completion) => {
            let Some((event, watch)) = completions::complete(state, completion) else { return };
            feed(state, event);
            if let Some(watch) = watch {
                watch.begin(state.reports.clone());
            }
        }
        Report::Exited { target, exit } => {
            let event = completions::exited(state, target, exit);
            feed(state, event);
        }
        Report::OutOfMemory { container } => feed(state, Event::OutOfMemory { container }),
        Report::Updated { container, limits } => {
            if let Some(resources) = state.container_mut(&container) {
                resources.limits_written(&limits);
            }
        }
        Report::NotUpdated(failed) => reads::update_failed(state, *failed),
        Report::GivenUp { op } => feed(state, completions::given_up(op)),
    }
}

fn on_command(state: &mut State, command: Command) {
    match command {
        Command::Create { container, details, answer } => {
            let path = state.context.node_file.clone();
            create(state, &container, *details, (SpecSource::Bundle, &NodeFile::at(&path)), answer);
        }
        Command::Exec { container, exec, details, answer } => {
            add_exec(state, container, exec, *details, answer);
        }
        Command::Checkpoint { container, mut details, answer } => {
            let resources = state.container(&container);
            let request = checkpoint::request(resources, container, &mut details);
            let id = state.requests.open_checkpoint(*details, answer);
            feed(state, Event::Request { id, request });
        }
        Command::Delete { target, limit, answer } => {
            hurry(state, &target);
            if target.exec.is_none() {
                state.close_unused_fifos(&target.container);
            }
            let id = state.requests.open(answer);
            if let Some(resources) = state.container_mut(&target.container) {
                resources.delete_requested(&target, id, limit);
            }
            feed(state, Event::Request { id, request: Request::Delete(target) });
        }
        Command::Pod { request, answer } => {
            if let Request::Kill { target, .. } = &request {
                hurry(state, target);
            }
            submit(state, request, answer);
        }
        Command::State { target, answer } => drop(answer.send(reads::task_state(state, &target))),
        Command::Pids { container, answer } => drop(answer.send(reads::pids(state, container))),
        Command::Stats { container, answer } => drop(answer.send(reads::stats(state, container))),
        Command::Update { container, resources, answer } => {
            reads::update(state, container, resources, answer)
        }
        Command::Resize { target, size, answer } => drop(answer.send(reads::resize(state, &target, size))),
        Command::CloseStdin { target, answer } => drop(answer.send(reads::close_stdin(state, &target))),
        Command::Control(command) => on_control(state, command),
        Command::Sandbox(command) => on_sandbox(state, command),
        Command::Shutdown { answer } => {
            // Trap 32.
            if sandbox_requests::is_unstarted(state) {
                forget_sandbox(state);
            }
            state.shutdown_requested();
            drop(answer.send(Ok(())));
        }
    }
}

/// A container, or a sandbox of the Sandbox API, is created.
fn create(
    state: &mut State,
    container: &ContainerId,
    details: CreateDetails,
    sources: (SpecSource, &NodeFile<'_>),
    answer: Answer<Reply>,
) {
    match creation::admit(state, container, details, sources) {
        Ok(spec) => {
            let request = Request::Create { container: container.clone(), spec: Box::new(spec) };
            submit(state, request, answer);
            creation::drop_if_refused(state, container);
        }
        Err(error) => drop(answer.send(Err(error))),
    }
}

fn add_exec(
    state: &mut State,
    container: ContainerId,
    exec: ExecId,
    details: ExecDetails,
    answer: Answer<Reply>,
) {
    let resources = state.container_mut(&container);
    let is_new = resources.is_some_and(|resources| resources.add_exec(&exec, details));
    submit(state, Request::Exec { container: container.clone(), exec: exec.clone() }, answer);
    let target = Target { container, exec: Some(exec.clone()) };
    // The pod has refused it.
    if is_new
        && state.pod().view(&target).is_err()
        && let Some(resources) = state.container_mut(&target.container)
    {
        resources.remove_exec(&exec);
    }
}

/// The Sandbox API.
fn on_sandbox(state: &mut State, command: SandboxCommand) {
    match command {
        SandboxCommand::Create { sandbox, details, answer } => {
            let path = state.context.node_file.clone();
            let node = NodeFile::at(&path);
            match sandbox_requests::create(state, &sandbox, &details, &node) {
                Ok((details, spec)) => {
                    create(state, &sandbox, details, (SpecSource::Own(Box::new(spec)), &node), answer);
                    if !state.has_container(&sandbox) {
                        state.forget(&sandbox);
                    }
                }
                Err(error) => drop(answer.send(Err(error))),
            }
        }
        SandboxCommand::Status { sandbox, answer } => {
            drop(answer.send(sandbox_requests::status(state, &sandbox)))
        }
        SandboxCommand::Metrics { sandbox, answer } => {
            drop(answer.send(sandbox_requests::metrics(state, &sandbox)))
        }
    }
}

/// Deletes a sandbox that was never started: no caller comes for it.
fn forget_sandbox(state: &mut State) {
    let Some(target) = state.sandbox_removal_begins() else { return };
    info!("the sandbox was never started: it is removed");
    let (answer, answered) = oneshot::channel();
    // A removal that no caller waits for does not count (trap 12).
    tokio::task::spawn_local(async move { drop(answered.await) });
    on_command(state, Command::Delete { target, limit: None, answer });
}

/// Answers an operator.
fn on_control(state: &mut State, command: ControlCommand) {
    match command {
        ControlCommand::Inspect { answer } => drop(answer.send(Ok(inspect::response(state)))),
        ControlCommand::Stop { grace, answer } => {
            info!(?grace, "asked to stop by an operator: the pod is stopped in order");
            let grace = grace.map(|grace| state.at_most(grace));
            feed(state, Event::StopPod { grace });
            drop(answer.send(Ok(())));
        }
        ControlCommand::Restart { request, answer } => {
            let forbidden = if request.is_empty() { None } else { forbids_requests(state) };
            let refusal = forbidden.or_else(|| state.pod().refuses_restart());
            match (state.restart_requests.take(request, refusal, wall_ms()), forbidden) {
                (Novelty::New, Some(why)) => {
                    let refusal = Refusal { kind: RefusalKind::FailedPrecondition, message: why.to_owned() };
                    drop(answer.send(Err(ServiceError::Refused(refusal))));
                }
                (Novelty::New, None) => submit(state, Request::Restart, answer),
                (Novelty::Repeated, _) => drop(answer.send(Ok(Reply::Ok))),
            }
        }
        ControlCommand::Events { after, long_poll, answer } => state.history.answer(after, long_poll, answer),
    }
}

/// R14: what the node's file says of it now; `podshim restart` on the node is no request by annotation.
fn forbids_requests(state: &State) -> Option<&'static str> {
    match NodeFile::at(&state.context.node_file).node() {
        Ok(node) => node.refuses_restart_requests().then_some("podshim.io/restart is forbidden on this node"),
        Err(_) => Some("the node's file cannot be read, or has a mistake"),
    }
}

/// Hands a caller's request to the pod.
fn submit(state: &mut State, request: Request, answer: Answer<Reply>) {
    let id = state.requests.open(answer);
    feed(state, Event::Request { id, request });
}

/// Hands an event to the pod and executes every action that it returns.
fn feed(state: &mut State, event: Event) {
    debug!(?event, "event");
    let actions = state.handle(event);
    log::write(&actions);
    for action in actions {
        debug!(?action, "action");
        state.record(&action);
        actions::execute(state, action);
    }
    state.history.answer_waiting();
}

/// A caller waits for the end of a container.
fn hurry(state: &State, target: &Target) {
    if let Some(resources) = state.container(&target.container) {
        resources.hurry().notify_waiters();
    }
}

/// Logs a fault of the plan once, in the shim's log and in those of the containers that run or wait.
fn report_fault(state: &mut State) {
    if !state.created_names.may_report() {
        return;
    }
    let inspection = inspect::inspect(state);
    let Some(line) = state.created_names.report(&inspection) else { return };
    warn!("{line}");
    for container in fault::waiting_containers(inspection) {
        actions::execute(state, Action::WriteLine { container, line: line.clone(), to: LineTarget::Log });
    }
}
